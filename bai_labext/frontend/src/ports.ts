/** Ports of a user's own programs, which a session shows as apps. */

export interface PortLimits {
  count: number;
  lowest: number;
  highest: number;
  reserved: number[];
}

/** Key of a text and the values of its placeholders. */
export interface Refusal {
  key: string;
  places: Record<string, string | number>;
}

/** The words of a field, separated by commas or spaces. */
export function words(field: string): string[] {
  return field.split(/[\s,]+/).filter(Boolean);
}

/**
 * Why a session would be refused with these ports; null if nothing is known against them.
 *
 * The manager checks them too: it alone knows on which ports the image's own apps listen.
 */
export function whyNotPorts(named: string[], limits: PortLimits): Refusal | null {
  const { count, lowest, highest, reserved } = limits;
  const wrong = named.find(word => portOf(word) < lowest || portOf(word) > highest);
  if (wrong !== undefined) {
    return { key: 'port-range', places: { port: wrong, lowest, highest } };
  }
  const numbers = named.map(portOf);
  const taken = numbers.find(number => reserved.includes(number));
  if (taken !== undefined) {
    return { key: 'port-reserved', places: { port: taken } };
  }
  const twice = numbers.find((number, at) => numbers.indexOf(number) !== at);
  if (twice !== undefined) {
    return { key: 'port-twice', places: { port: twice } };
  }
  const asked = numbers.length;
  return asked > count ? { key: 'port-count', places: { asked, most: count } } : null;
}

/** The number in a word, 0 if it is not one. */
function portOf(word: string): number {
  return /^\d{1,5}$/.test(word) ? Number(word) : 0;
}
