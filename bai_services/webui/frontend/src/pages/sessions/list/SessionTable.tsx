import { useMemo, type Key, type ReactNode } from 'react';
import { Button, Empty } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ListTable } from '../../../components/list/ListTable';
import { useHasNoProject, useIsReadOnly } from '../../../data/accounts/me';
import { isEnded, type Session } from '../../../data/sessions/sessions';
import { usageTrendsQuery } from '../../../data/sessions/usage';
import { DEFAULT_SORT, filtersOf, type SessionsSearch } from '../search';
import { Emails, useEmails } from './Owner';
import { useSessionColumns } from './sessionColumns';
import { UsageTrends } from './UsageTrend';

const NONE: readonly Session[] = [];

interface SessionTableProps {
  page: { items: Session[]; total: number } | undefined;
  isLoading: boolean;
  search: SessionsSearch;
  /**
   * Ids of the selected sessions. Keep this array and the callbacks referentially stable: a new
   * array or function renders all rows again.
   */
  selected: string[];
  /** Omitted for users who may not stop sessions: the rows cannot be selected. */
  onSelect?: (ids: string[]) => void;
  onChange: (changes: SessionsSearch) => void;
  filters: ReactNode;
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
  const { selected, onSelect } = props;
  const sessions = props.page?.items ?? NONE;
  const columns = useSessionColumns();
  const running = sessions.filter(({ status }) => status === 'RUNNING').map(({ id }) => id);
  const { data: trends } = useQuery(usageTrendsQuery(running));
  const rowSelection = useMemo(
    () => ({
      selectedRowKeys: selected,
      onChange: (keys: Key[]) => onSelect?.(keys.map(String)),
      getCheckboxProps: (session: Session) => ({
        disabled: isEnded(session),
        'aria-label': t('sessions.select', { name: session.name })
      }),
      getTitleCheckboxProps: () => ({ 'aria-label': t('sessions.select-all') })
    }),
    [t, selected, onSelect]
  );
  return (
    <Emails value={useEmails(sessions)}>
      <UsageTrends value={trends}>
        <ListTable<Session>
          name="sessions"
          rowKey="id"
          columns={columns}
          page={props.page}
          isLoading={props.isLoading}
          search={props.search}
          defaultSort={DEFAULT_SORT}
          onChange={props.onChange}
          filters={props.filters}
          toolbar={props.toolbar}
          tools={props.tools}
          csv={props.csv}
          onRefresh={props.onRefresh}
          isRefreshing={props.isRefreshing}
          empty={<NoSessions hasFilters={Object.keys(filtersOf(props.search)).length > 0} />}
          {...(onSelect ? { rowSelection } : {})}
        />
      </UsageTrends>
    </Emails>
  );
}

function NoSessions({ hasFilters }: { hasFilters: boolean }) {
  const { t } = useTranslation();
  const hasNoProject = useHasNoProject();
  const mayCreate = useIsReadOnly() === false && !hasNoProject;
  return (
    <Empty
      image={Empty.PRESENTED_IMAGE_SIMPLE}
      description={t(hasFilters ? 'sessions.none-found' : 'sessions.none')}
    >
      {!hasFilters && mayCreate && (
        <Link to="/launch">
          <Button>{t('sessions.create')}</Button>
        </Link>
      )}
    </Empty>
  );
}
