import { currentPageSize, PAGE_SIZES } from './pageSize';

/** State of a server-side list in the URL, without default values. */
export interface ListSearch {
  sort?: string;
  page?: number;
  size?: number;
  /** Filters of the API: a field, or `field__operator`. */
  filters?: Record<string, string>;
}

/**
 * The text of a value in the URL; undefined if it is empty or not a text. The router parses a text
 * of digits, for example the session name `123`, as a number.
 */
export const textIn = (value: unknown) =>
  (typeof value === 'string' && value) || (typeof value === 'number' && String(value)) || undefined;

/**
 * Parse a value in the URL as JSON.
 *
 * @throws SyntaxError if the value is not JSON, or is a number in an unusual notation, such as
 * `1e5`. The router then keeps the text, which can be a name.
 */
export function parseSearchValue(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (typeof value === 'number' && String(value) !== text) {
    throw new SyntaxError(`${text} is a text`);
  }
  return value;
}

export const numberIn = (value: unknown) =>
  typeof value === 'number' && Number.isInteger(value) && value > 0 ? value : undefined;

const SORT = /^-?[a-z_]+$/;

const filtersIn = (value: unknown) => {
  const entries = Object.entries(value !== null && typeof value === 'object' ? value : {}).filter(
    (entry): entry is [string, string] => textIn(entry[1]) !== undefined
  );
  return entries.length > 0 ? Object.fromEntries(entries) : undefined;
};

/**
 * Return a validator for the router. The router keeps the values of a URL that a validator leaves
 * out, so these are explicitly undefined.
 */
export const validated =
  <T extends object>(read: (search: Record<string, unknown>) => T) =>
  (search: Record<string, unknown>): T => ({
    ...Object.fromEntries(Object.keys(search).map(key => [key, undefined])),
    ...read(search)
  });

/** Remove undefined values, because the state in the URL must not contain any. */
export function defined<T extends object>(
  values: T
): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

/** Parse the state in a URL; ignore invalid values. */
export function readListSearch(search: Record<string, unknown>): ListSearch {
  const sort = textIn(search['sort']);
  const size = numberIn(search['size']);
  return defined({
    sort: sort && SORT.test(sort) ? sort : undefined,
    page: numberIn(search['page']),
    size: size && PAGE_SIZES.includes(size) ? size : undefined,
    filters: filtersIn(search['filters'])
  });
}

// The server's total is exact up to this number. For a page that ends later, the total is exact up
// to the end of the page; see max_exact_total in core/listing.py.
const MIN_EXACT_TOTAL = 1000;

/** The total of a list as text, such as "1000+"; `last` is the number of the last row read. */
export function countText(total: number, last = 0): string {
  const exact = Math.max(MIN_EXACT_TOTAL, last);
  return total > exact ? `${exact}+` : String(total);
}

/** The query parameters of a page of the list. */
export interface ListQuery {
  limit: number;
  offset: number;
  sort: string;
  filters: Record<string, string>;
}

export function listQuery(search: ListSearch, defaultSort: string): ListQuery {
  const size = search.size ?? currentPageSize();
  return {
    limit: size,
    offset: ((search.page ?? 1) - 1) * size,
    sort: search.sort ?? defaultSort,
    filters: search.filters ?? {}
  };
}
