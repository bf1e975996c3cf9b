import { useEffect } from 'react';
import type { UseQueryResult } from '@tanstack/react-query';
import { useLatest } from '../useLatest';
import type { ListQuery } from './listSearch';

/** Prefetch the page after `page` with `read`. */
export function usePrefetchNextPage(
  page: UseQueryResult<{ total: number }>,
  list: ListQuery,
  read: (list: ListQuery) => Promise<unknown>
): void {
  const next = { ...list, offset: list.offset + list.limit };
  const hasNext =
    page.data !== undefined && !page.isPlaceholderData && page.data.total > next.offset;
  const key = JSON.stringify(next);
  // The error of a prefetched page is not shown before the user opens the page.
  const prefetch = useLatest(() => void read(next).catch(() => undefined));
  useEffect(() => {
    if (hasNext) {
      prefetch();
    }
  }, [hasNext, key, prefetch]);
}
