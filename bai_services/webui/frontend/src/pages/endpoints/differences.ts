export interface Difference {
  /** Path of the setting, such as `request.resources.cpu`. */
  path: string;
  before: string;
  after: string;
}

/** The settings that differ between two revisions, by path; missing settings are empty. */
export function differences(before: unknown, after: unknown): Difference[] {
  const [old, changed] = [flat(before), flat(after)];
  return [...new Set([...old.keys(), ...changed.keys()])]
    .map(path => ({ path, before: old.get(path) ?? '', after: changed.get(path) ?? '' }))
    .filter(row => row.before !== row.after)
    .sort((one, other) => one.path.localeCompare(other.path, 'en'));
}

/** The values of an object by path, as text. */
function flat(value: unknown, path = ''): Map<string, string> {
  if (value === null || value === undefined) {
    return new Map();
  }
  if (typeof value !== 'object') {
    return new Map([[path, typeof value === 'string' ? value : JSON.stringify(value)]]);
  }
  return new Map(
    Object.entries(value).flatMap(([key, part]) => [...flat(part, path ? `${path}.${key}` : key)])
  );
}
