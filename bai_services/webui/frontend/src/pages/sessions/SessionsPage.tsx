import { useCallback } from 'react';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { NoProject } from '../../components/NoProject';
import { PageTitle } from '../../components/PageTitle';
import { SearchInput } from '../../components/SearchInput';
import { SavedFilters } from '../../components/list/SavedFilters';
import { csvUrl } from '../../data/csv';
import { FilterBar } from '../../components/list/FilterBar';
import { listQuery } from '../../components/list/listSearch';
import { usePrefetchNextPage } from '../../components/list/usePrefetchNextPage';
import { queries } from '../../data/queries';
import { LIST_REFRESH_MILLIS, sessionsQuery, type Session } from '../../data/sessions/sessions';
import { useHasNoProject, useIsReadOnly } from '../../data/accounts/me';
import { useChosenProject } from '../../data/accounts/project';
import { DEFAULT_SORT, filtersOf, readSessionsSearch, type SessionsSearch } from './search';
import { ResourcePanel } from './list/ResourcePanel';
import { SessionDrawer } from './drawer/SessionDrawer';
import { useSessionFilters } from './list/sessionFilters';
import { SearchLogs } from './list/SearchLogs';
import { SessionTabs } from './list/SessionTabs';
import { SessionTable } from './list/SessionTable';
import { StopSessions } from './list/StopSessions';
import { useSelection } from './list/useSelection';

const route = getRouteApi('/sessions');
const NONE: readonly Session[] = [];
const NO_FILTERS = {};

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
  usePrefetchNextPage(sessions, list, next => queries.query(sessionsQuery(next)));
  const properties = useSessionFilters();
  // Stable callbacks, so that the memoized ResourcePanel, SessionTabs and FilterBar render again
  // only when their props change.
  const change = useCallback(
    (changes: SessionsSearch) =>
      void navigate({ search: old => readSessionsSearch({ ...old, ...changes }) }),
    [navigate]
  );
  const chooseGroup = useCallback((group: string) => change({ group }), [change]);
  const filter = useCallback(
    (filters: Record<string, string>) => change({ filters, page: 1 }),
    [change]
  );
  const mayChange = useIsReadOnly() === false;
  const hasNoProject = useHasNoProject();
  const selection = useSelection(list, sessions.data?.items ?? NONE);

  return (
    <>
      <PageTitle>{t('pages.sessions')}</PageTitle>
      {mayChange && !hasNoProject && <ResourcePanel group={search.group} onGroup={chooseGroup} />}
      {mayChange && hasNoProject && <NoProject />}
      <SessionTabs
        active={search.tab ?? 'all'}
        name={search.name}
        filters={search.filters ?? NO_FILTERS}
        project={project?.name}
        onChange={change}
      />
      {sessions.error && (
        <ErrorNotice error={sessions.error} onRetry={() => void sessions.refetch()} />
      )}
      <SessionTable
        page={sessions.data}
        isLoading={sessions.isFetching && !sessions.data}
        search={search}
        selected={selection.ids}
        {...(mayChange ? { onSelect: selection.select } : {})}
        onChange={change}
        csv={csvUrl('/sessions', list)}
        onRefresh={() => void sessions.refetch()}
        isRefreshing={sessions.isFetching}
        tools={
          <>
            <SearchLogs />
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
          </>
        }
        filters={
          <>
            <SearchInput
              value={search.name ?? ''}
              label={t('sessions.find')}
              onSearch={name => change({ name, page: 1 })}
            />
            <FilterBar
              properties={properties}
              filters={search.filters ?? NO_FILTERS}
              onChange={filter}
            />
          </>
        }
        toolbar={mayChange && <StopSessions selection={selection} />}
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
