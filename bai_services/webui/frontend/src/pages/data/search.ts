/** State of the data page in the URL. */
export interface DataSearch {
  name?: string;
  page?: number;
  /** Id of the folder in the drawer. */
  folder?: string;
}

export function readDataSearch(search: Record<string, unknown>): DataSearch {
  const { name, page, folder } = search;
  return {
    ...(typeof name === 'string' && name ? { name } : {}),
    ...(typeof page === 'number' && Number.isInteger(page) && page > 1 ? { page } : {}),
    ...(typeof folder === 'string' && folder ? { folder } : {})
  };
}
