import type { Items } from './types';

/** Items per request: MAX_LIMIT in core/listing.py. */
export const MAX_LIMIT = 500;

/** Read a list of the API completely, page by page; `path` may contain a query. */
export async function allItems<T>(
  read: (path: string) => Promise<Items<T>>,
  path: string
): Promise<T[]> {
  const start = path + (path.includes('?') ? '&' : '?');
  const all: T[] = [];
  for (;;) {
    const { items } = await read(`${start}limit=${MAX_LIMIT}&offset=${all.length}`);
    all.push(...items);
    if (items.length < MAX_LIMIT) {
      return all;
    }
  }
}
