/** Ports of a user's own programs, which the panel shows as apps. */

export interface PortLimits {
  count: number;
  lowest: number;
  highest: number;
  reserved: number[];
}

/** A message: the key of its text and the values of the placeholders. */
export interface Problem {
  key: string;
  values: Record<string, string | number>;
}

/** Split the text of a field at commas and spaces. */
export function words(field: string): string[] {
  return field.split(/[\s,]+/).filter(Boolean);
}

/**
 * The problem with requested ports; null if there is none.
 *
 * The manager validates them again, because only it knows the ports of the image's apps.
 */
export function portsProblem(named: string[], limits: PortLimits): Problem | null {
  const { count, lowest, highest, reserved } = limits;
  const wrong = named.find(word => portOf(word) < lowest || portOf(word) > highest);
  if (wrong !== undefined) {
    return { key: 'port-range', values: { port: wrong, lowest, highest } };
  }
  const numbers = named.map(portOf);
  const taken = numbers.find(number => reserved.includes(number));
  if (taken !== undefined) {
    return { key: 'port-reserved', values: { port: taken } };
  }
  const twice = numbers.find((number, at) => numbers.indexOf(number) !== at);
  if (twice !== undefined) {
    return { key: 'port-twice', values: { port: twice } };
  }
  const asked = numbers.length;
  return asked > count ? { key: 'port-count', values: { asked, most: count } } : null;
}

/** The number in a word; 0 if it is not a number. */
function portOf(word: string): number {
  return /^\d{1,5}$/.test(word) ? Number(word) : 0;
}
