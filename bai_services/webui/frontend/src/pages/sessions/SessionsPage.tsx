import { Input, Tabs, Typography } from 'antd';
import { useQueries, useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { SavedFilters } from '../../components/list/SavedFilters';
import { csvUrl } from '../../data/csv';
import { FilterBar } from '../../components/list/FilterBar';
import { countText, listQuery } from '../../components/list/listSearch';
import {
  LIST_REFRESH_MILLIS,
  sessionCountQuery,
  sessionsQuery
} from '../../data/sessions/sessions';
import { useChosenProject } from '../../data/accounts/project';
import {
  DEFAULT_SORT,
  filtersOf,
  readSessionsSearch,
  TABS,
  type SessionsSearch,
  type Tab
} from './search';
import { ResourcePanel } from './list/ResourcePanel';
import { SessionDrawer } from './drawer/SessionDrawer';
import { useSessionFilters } from './list/sessionFilters';
import { SessionTable } from './list/SessionTable';
import { StopSessions } from './list/StopSessions';
import { useSelection } from './list/useSelection';

const route = getRouteApi('/sessions');

export function SessionsPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const project = useChosenProject();
  const ofProject: Record<string, string> = project ? { project: project.name } : {};
  const filters = { ...ofProject, ...filtersOf(search) };
  const list = { ...listQuery(search, DEFAULT_SORT), filters };
  const sessions = useQuery({
    ...sessionsQuery(list),
    refetchInterval: LIST_REFRESH_MILLIS
  });
  const counts = useQueries({
    queries: TABS.map(tab => sessionCountQuery({ ...ofProject, ...filtersOf({ ...search, tab }) }))
  });
  const properties = useSessionFilters();
  const change = (changes: SessionsSearch, replace = false) =>
    void navigate({ search: old => readSessionsSearch({ ...old, ...changes }), replace });
  const selection = useSelection(list, sessions.data?.items ?? []);

  return (
    <>
      <Typography.Title level={3} style={{ margin: 0 }}>
        {t('pages.sessions')}
      </Typography.Title>
      <ResourcePanel group={search.group} onGroup={group => change({ group })} />
      <Tabs
        activeKey={search.tab ?? 'all'}
        onChange={tab => change({ tab: tab as Tab, page: 1 })}
        items={TABS.map((key, index) => {
          const tab = t(`sessions.tab-${key}`);
          const count = counts[index]?.data;
          const label =
            count === undefined ? tab : t('data.tab-count', { tab, count: countText(count) });
          return { key, label };
        })}
      />
      {sessions.error && (
        <ErrorNotice error={sessions.error} onRetry={() => void sessions.refetch()} />
      )}
      <SessionTable
        page={sessions.data}
        isLoading={sessions.isFetching && !sessions.data}
        search={search}
        selected={selection.sessions.map(({ id }) => id)}
        onSelect={selection.select}
        onChange={change}
        csv={csvUrl('/sessions', list)}
        onRefresh={() => void sessions.refetch()}
        isRefreshing={sessions.isFetching}
        tools={
          <SavedFilters
            list="sessions"
            search={{
              tab: search.tab ?? 'all',
              name: search.name,
              filters: search.filters ?? {},
              sort: search.sort
            }}
            onApply={saved => void navigate({ search: readSessionsSearch(saved) })}
          />
        }
        toolbar={
          <>
            <Input.Search
              allowClear
              key={search.name ?? ''}
              defaultValue={search.name ?? ''}
              placeholder={t('sessions.find')}
              aria-label={t('sessions.find')}
              onSearch={name => change({ name, page: 1 })}
              style={{ maxWidth: 240 }}
            />
            <FilterBar
              properties={properties}
              filters={search.filters ?? {}}
              onChange={filters => change({ filters, page: 1 })}
            />
            <StopSessions selection={selection} />
          </>
        }
      />
      <SessionDrawer
        id={search.session}
        panel={search.panel}
        onClose={() =>
          void navigate({
            search: old => readSessionsSearch({ ...old, session: undefined, panel: undefined })
          })
        }
      />
    </>
  );
}
