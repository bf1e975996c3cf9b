import { useEffect, type ReactNode } from 'react';
import { List, type ListProps } from 'antd';
import type { UseQueryResult } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../ErrorNotice';
import { countText } from './listSearch';

export const PAGE_SIZE = 20;

/** The limit and offset of a page; the first page has the number 1. */
export const rangeOf = (page: number) => ({ limit: PAGE_SIZE, offset: (page - 1) * PAGE_SIZE });

/** Go to the last page after the last item of the page `page` was removed. */
export function useExistingPage(
  page: number,
  total: number | undefined,
  onPage: (page: number) => void
) {
  const last = Math.max(1, Math.ceil((total ?? 0) / PAGE_SIZE));
  const isGone = total !== undefined && page > last;
  useEffect(() => {
    if (isGone) {
      onPage(last);
    }
  }, [isGone, last, onPage]);
}

interface PagedListProps<T> {
  /** The query for the items of the page `page`. */
  query: UseQueryResult<{ items: T[]; total: number }>;
  page: number;
  onPage: (page: number) => void;
  renderItem: (item: T) => ReactNode;
  locale?: NonNullable<ListProps<T>['locale']>;
}

/** A list that is paged by the server. */
export function PagedList<T>({ query, page, onPage, ...list }: PagedListProps<T>) {
  const { t } = useTranslation();
  const { data, error, isPending, refetch } = query;
  useExistingPage(page, data?.total, onPage);
  const notice = error && (
    <div style={{ marginBlockStart: 12 }}>
      <ErrorNotice error={error} onRetry={() => void refetch()} />
    </div>
  );
  // A list that could not be read must not look empty.
  if (notice && data === undefined) {
    return notice;
  }
  return (
    <>
      {notice}
      <List<T>
        size="small"
        loading={isPending}
        dataSource={data?.items ?? []}
        pagination={{
          current: page,
          pageSize: PAGE_SIZE,
          total: data?.total ?? 0,
          onChange: onPage,
          showSizeChanger: false,
          hideOnSinglePage: true,
          size: 'small',
          showTotal: (total, [first, end]) =>
            t('table.range', { first, last: end, total: countText(total, end) })
        }}
        {...list}
      />
    </>
  );
}
