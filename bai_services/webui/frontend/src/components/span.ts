const SECONDS = { s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 } as const;
/** The units that the launcher offers. */
export const UNITS = ['s', 'm', 'h', 'd'] as const;
type Unit = (typeof UNITS)[number];

const PARTS = [
  ['d', SECONDS.d],
  ['h', SECONDS.h],
  ['min', SECONDS.m],
  ['s', SECONDS.s]
] as const;

const SIMPLE = /^(\d{1,9})([smhd]?)$/;
// The syntax of core/durations.py.
const PART = /(\d{1,9})\s*(secs?|seconds?|mins?|minutes?|hours?|days?|weeks?|[smhdw])(?![a-z])/g;

/**
 * Parse a duration to a number and a unit. The unit of `90m` is kept; `1h30m` becomes 90 m, in the
 * largest unit that leaves no remainder. Undefined if the text is not a duration.
 */
export function spanOf(text: string): { count: number; unit: Unit } | undefined {
  const given = text.trim().toLowerCase();
  const [, digits, unit] = SIMPLE.exec(given) ?? [];
  if (digits !== undefined) {
    return { count: Number(digits), unit: (unit || 's') as Unit };
  }
  if (given === '' || given.replace(PART, '').trim() !== '') {
    return undefined;
  }
  const seconds = [...given.matchAll(PART)].reduce(
    (sum, [, count, name]) =>
      sum + Number(count) * SECONDS[name?.charAt(0) as keyof typeof SECONDS],
    0
  );
  const largest = UNITS.findLast(one => seconds % SECONDS[one] === 0) ?? 's';
  return { count: seconds / SECONDS[largest], unit: largest };
}

/** Parse a duration such as `90`, `10min` or `1h30m` to seconds; undefined if it is not one. */
export function secondsOf(text: string): number | undefined {
  const span = spanOf(text);
  return span && span.count * SECONDS[span.unit];
}

/** Format seconds as a text that `secondsOf` parses to the same number: `1h 30min`. */
export function spanText(seconds: number): string {
  let rest = seconds;
  const parts = PARTS.flatMap(([name, size]) => {
    const count = Math.floor(rest / size);
    rest %= size;
    return count > 0 ? [`${String(count)}${name}`] : [];
  });
  return parts.join(' ') || '0';
}
