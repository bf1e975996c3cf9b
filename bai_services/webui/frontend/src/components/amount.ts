const BINARY_UNITS = ['', 'k', 'm', 'g', 't', 'p'];
const UNIT_NAMES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const MEMORY = /^(\d+(?:\.\d+)?)([kmgtp]?)$/;

/**
 * Write an amount of memory for display, for example "24684084k" as "23.5 GiB"; return an amount of
 * another slot unchanged.
 */
export function shortAmount(slot: string, amount: string): string {
  const [, digits, unit] = (slot === 'mem' && MEMORY.exec(amount)) || [];
  if (digits === undefined || unit === undefined) {
    return amount;
  }
  let value = Number(digits);
  if (value === 0) {
    return '0';
  }
  let index = BINARY_UNITS.indexOf(unit);
  while (value >= 1024 && index < BINARY_UNITS.length - 1) {
    value /= 1024;
    index += 1;
  }
  return `${Number(value.toFixed(1))} ${UNIT_NAMES[index] ?? ''}`;
}

/** The numeric value of an amount such as `4`, `0.25` or `16g`, for charts. */
export function numberOf(amount: string): number {
  const [, digits, unit] = MEMORY.exec(amount) ?? [];
  return Number(digits ?? 0) * 1024 ** BINARY_UNITS.indexOf(unit ?? '');
}

/** The sum of two amounts of one slot; for memory, a number of bytes. */
export function addAmounts(first: string, second: string): string {
  // A share has at most three decimal places; sums of binary fractions are inexact (0.1 + 0.2).
  return String(Number((numberOf(first) + numberOf(second)).toFixed(3)));
}
