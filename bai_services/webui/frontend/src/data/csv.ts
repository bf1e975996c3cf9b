import { config } from '../config';

/** URL of a list as a file with a JSON object on each line. */
export const jsonLinesUrl = (path: string) => `${config.api}${path}?format=jsonl&sort=id`;

/** URL of a list as a CSV file, with all rows that match the filters, in the order of the list. */
export function csvUrl(path: string, list: { sort: string; filters: Record<string, string> }) {
  const query = new URLSearchParams({
    ...list.filters,
    ...(list.sort ? { sort: list.sort } : {}),
    format: 'csv'
  });
  return `${config.api}${path}?${query.toString()}`;
}
