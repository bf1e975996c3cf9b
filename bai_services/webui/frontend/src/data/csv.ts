import { config } from '../config';

/** Address of a list as a CSV file, with all rows of the filters in their order. */
export function csvUrl(path: string, list: { sort: string; filters: Record<string, string> }) {
  const query = new URLSearchParams({
    ...list.filters,
    ...(list.sort ? { sort: list.sort } : {}),
    format: 'csv'
  });
  return `${config.api}${path}?${query.toString()}`;
}
