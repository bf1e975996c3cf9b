import type { ReactNode } from 'react';
import { Button, Empty } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ListTable } from '../../../components/list/ListTable';
import { isEnded, type Session } from '../../../data/sessions/sessions';
import { DEFAULT_SORT, filtersOf, type SessionsSearch } from '../search';
import { useSessionColumns } from './sessionColumns';

interface SessionTableProps {
  page: { items: Session[]; total: number } | undefined;
  isLoading: boolean;
  search: SessionsSearch;
  selected: string[];
  onSelect: (ids: string[]) => void;
  onChange: (changes: SessionsSearch) => void;
  toolbar: ReactNode;
  tools: ReactNode;
  csv: string;
  onRefresh: () => void;
  isRefreshing: boolean;
}

/**
 * One page of sessions, sorted and paged by the server; the URL contains the sort order and the
 * page.
 */
export function SessionTable(props: SessionTableProps) {
  const { t } = useTranslation();
  const columns = useSessionColumns(props.page?.items ?? []);
  return (
    <ListTable<Session>
      name="sessions"
      rowKey="id"
      columns={columns}
      page={props.page}
      isLoading={props.isLoading}
      search={props.search}
      defaultSort={DEFAULT_SORT}
      onChange={props.onChange}
      toolbar={props.toolbar}
      tools={props.tools}
      csv={props.csv}
      onRefresh={props.onRefresh}
      isRefreshing={props.isRefreshing}
      empty={<NoSessions hasFilters={Object.keys(filtersOf(props.search)).length > 0} />}
      rowSelection={{
        selectedRowKeys: props.selected,
        onChange: keys => props.onSelect(keys.map(String)),
        getCheckboxProps: session => ({
          disabled: isEnded(session),
          'aria-label': t('sessions.select', { name: session.name })
        }),
        getTitleCheckboxProps: () => ({ 'aria-label': t('sessions.select-all') })
      }}
    />
  );
}

function NoSessions({ hasFilters }: { hasFilters: boolean }) {
  const { t } = useTranslation();
  return (
    <Empty
      image={Empty.PRESENTED_IMAGE_SIMPLE}
      description={t(hasFilters ? 'sessions.none-found' : 'sessions.none')}
    >
      {!hasFilters && (
        <Link to="/launch">
          <Button>{t('sessions.create')}</Button>
        </Link>
      )}
    </Empty>
  );
}
