/** Items per request: MAX_LIMIT in core/listing.py. */
export const MAX_LIMIT = 500;

/** Read all items of a list of the API, page by page. */
export async function allItems<T>(
  read: (page: { limit: number; offset: number }) => Promise<{ items: T[] }>
): Promise<T[]> {
  const all: T[] = [];
  for (;;) {
    const { items } = await read({ limit: MAX_LIMIT, offset: all.length });
    all.push(...items);
    if (items.length < MAX_LIMIT) {
      return all;
    }
  }
}
