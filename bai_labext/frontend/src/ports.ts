/** Ports of the user's own programs. The panel shows each port as an app. */

export interface PortLimits {
  count: number;
  lowest: number;
  highest: number;
  reserved: number[];
}

/** An error message: the key of its text and the values of the placeholders. */
export interface Problem {
  key: string;
  values: Record<string, string | number>;
}

/** Split the text of a field at commas and spaces. */
export function splitWords(field: string): string[] {
  return field.split(/[\s,]+/).filter(Boolean);
}

/**
 * Return the first problem of the requested ports; null if they are valid.
 *
 * The manager also checks them against the ports of the image's apps, which are unknown here.
 */
export function portsProblem(named: string[], limits: PortLimits): Problem | null {
  const { count, lowest, highest, reserved } = limits;
  const invalid = named.find(word => parsePort(word) < lowest || parsePort(word) > highest);
  if (invalid !== undefined) {
    return { key: 'port-range', values: { port: invalid, lowest, highest } };
  }
  const numbers = named.map(parsePort);
  const reservedPort = numbers.find(number => reserved.includes(number));
  if (reservedPort !== undefined) {
    return { key: 'port-reserved', values: { port: reservedPort } };
  }
  const duplicate = numbers.find((number, at) => numbers.indexOf(number) !== at);
  if (duplicate !== undefined) {
    return { key: 'port-twice', values: { port: duplicate } };
  }
  return numbers.length > count
    ? { key: 'port-count', values: { asked: numbers.length, most: count } }
    : null;
}

/** Parse a port number of one to five digits; return 0 for any other word. */
function parsePort(word: string): number {
  return /^\d{1,5}$/.test(word) ? Number(word) : 0;
}
