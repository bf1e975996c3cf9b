import { useState } from 'react';
import { App, Button, Flex, Input, Tabs, Typography } from 'antd';
import { useQueries, useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { countText } from '../../components/listSearch';
import { SavedFilters } from '../../components/SavedFilters';
import { csvUrl } from '../../data/csv';
import { FilterBar } from '../../components/FilterBar';
import { listQuery } from '../../components/listSearch';
import { isEnded, sessionCountQuery, sessionsQuery, useStopSessions } from '../../data/sessions';
import { meQuery } from '../../data/me';
import { useChosenProject } from '../../data/project';
import {
  DEFAULT_SORT,
  filtersOf,
  readSessionsSearch,
  TABS,
  type SessionsSearch,
  type Tab
} from './search';
import { SessionDrawer } from './SessionDrawer';
import { SessionTable } from './SessionTable';

const route = getRouteApi('/sessions');

export function SessionsPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { modal, message } = App.useApp();
  const stop = useStopSessions();
  const [selected, setSelected] = useState<string[]>([]);
  const project = useChosenProject();
  const ofProject: Record<string, string> = project ? { project: project.name } : {};
  const filters = { ...ofProject, ...filtersOf(search) };
  const list = { ...listQuery(search, DEFAULT_SORT), filters };
  const sessions = useQuery(sessionsQuery(list));
  const counts = useQueries({
    queries: TABS.map(tab => sessionCountQuery({ ...ofProject, ...filtersOf({ ...search, tab }) }))
  });
  const { data: me } = useQuery(meQuery);
  const properties = [
    { key: 'resource_group', title: t('sessions.group') },
    { key: 'image__contains', title: t('sessions.image') },
    { key: 'project', title: t('sessions.project') },
    ...(me && me.role !== 'user' ? [{ key: 'owner', title: t('sessions.owner') }] : [])
  ];

  const change = (changes: SessionsSearch, replace = false) =>
    void navigate({ search: old => readSessionsSearch({ ...old, ...changes }), replace });
  const chosen = (sessions.data?.items ?? []).filter(
    session => selected.includes(session.id) && !isEnded(session)
  );

  const confirmStop = () => {
    modal.confirm({
      title: t('sessions.stop-title', { count: chosen.length }),
      content: (
        <>
          <p>{t('sessions.stop-warning')}</p>
          <ul>
            {chosen.map(session => (
              <li key={session.id}>{session.name}</li>
            ))}
          </ul>
        </>
      ),
      okText: t('sessions.stop'),
      okButtonProps: { danger: true },
      onOk: async () => {
        const failures = await stop.mutateAsync(chosen);
        failures.forEach(
          ({ session, error }) => void message.error(`${session.name}: ${error.message}`)
        );
        setSelected([]);
      }
    });
  };

  return (
    <>
      <Flex wrap gap="small" align="center">
        <Typography.Title level={3} style={{ margin: 0, flex: 1 }}>
          {t('pages.sessions')}
        </Typography.Title>
        <Link to="/launch">
          <Button type="primary">{t('sessions.create')}</Button>
        </Link>
      </Flex>
      <Tabs
        activeKey={search.tab ?? 'all'}
        onChange={tab => change({ tab: tab as Tab, page: 1 })}
        items={TABS.map((key, index) => ({
          key,
          label:
            counts[index]?.data === undefined
              ? t(`sessions.tab-${key}`)
              : t('data.tab-count', {
                  tab: t(`sessions.tab-${key}`),
                  count: countText(counts[index].data)
                })
        }))}
      />
      {sessions.error && (
        <ErrorNotice error={sessions.error} onRetry={() => void sessions.refetch()} />
      )}
      <SessionTable
        page={sessions.data}
        isLoading={sessions.isFetching && !sessions.data}
        search={search}
        selected={selected}
        onSelect={setSelected}
        onChange={change}
        csv={csvUrl('/sessions', list)}
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
            <Button danger disabled={chosen.length === 0} onClick={confirmStop}>
              {t('sessions.stop-selected', { count: chosen.length })}
            </Button>
          </>
        }
      />
      <SessionDrawer
        id={search.session}
        onClose={() =>
          void navigate({ search: old => readSessionsSearch({ ...old, session: undefined }) })
        }
      />
    </>
  );
}
