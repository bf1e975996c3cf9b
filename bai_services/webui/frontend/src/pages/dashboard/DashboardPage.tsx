import { Flex, Select, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Board } from '../../components/board/Board';
import { storedLayout } from '../../components/board/layout';
import { meQuery } from '../../data/accounts/me';
import { useChosenProject } from '../../data/accounts/project';
import { GroupResources, MyQuotas, MyStorage } from './MyQuotas';
import { ActiveAgents, AgentStatistics } from './AgentWidgets';
import { dashboardQuery } from '../../data/dashboard';
import { ErrorNotice } from '../../components/ErrorNotice';
import { MyDevices, MyQueue, SessionCounts } from './SessionWidgets';
import { RecentSessions } from './RecentSessions';
import type { DashboardSearch } from './search';

const layout = storedLayout('dashboard');
const route = getRouteApi('/dashboard');

/**
 * Sessions, quotas, resources and queue of the user. Superadmins and monitors also see the agents,
 * and the sessions of all users. One request returns the content of all cards. The request is
 * repeated every 15 s, and when a session or a folder changes.
 */
export function DashboardPage() {
  const { t } = useTranslation();
  const chosen = useChosenProject();
  const search = { ...(chosen ? { project: chosen.name } : {}), ...route.useSearch() };
  const navigate = route.useNavigate();
  const { data: me } = useQuery(meQuery);
  const change = (changes: DashboardSearch) =>
    void navigate({ search: old => ({ ...old, ...changes }) });
  const projects = me?.projects ?? [];
  const seesAll = me?.role === 'superadmin' || me?.role === 'monitor';
  const query = useQuery(dashboardQuery(search));
  // Monitors may not create sessions, so they have no quotas.
  const hasQuotas = me?.role !== 'monitor';
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 16 }}>
        <Typography.Title level={1} className="bai-title">
          {t('pages.dashboard')}
        </Typography.Title>
        {projects.length > 1 && (
          <Select
            value={search.project ?? projects[0]?.name ?? null}
            options={projects.map(({ name }) => ({ value: name, label: name }))}
            // Reset the group, because another project can have other groups.
            onChange={(project: string | null) =>
              void navigate({ search: project ? { project } : {} })
            }
            aria-label={t('dashboard.project')}
            style={{ minWidth: 160 }}
          />
        )}
      </Flex>
      {query.error && <ErrorNotice error={query.error} onRetry={() => void query.refetch()} />}
      {me && (
        <Board
          layout={layout}
          cards={[
            {
              key: 'sessions',
              content: <SessionCounts query={query} owner={seesAll ? undefined : me.username} />
            },
            ...(seesAll
              ? [
                  { key: 'agent-statistics', content: <AgentStatistics query={query} /> },
                  { key: 'agents', span: 2, content: <ActiveAgents query={query} /> }
                ]
              : []),
            {
              key: 'recent',
              span: 2,
              content: <RecentSessions query={query} />
            },
            ...(hasQuotas ? [{ key: 'quotas', content: <MyQuotas query={query} /> }] : []),
            { key: 'storage', content: <MyStorage query={query} /> },
            ...(hasQuotas ? (['mine', 'group'] as const) : []).map(panel => ({
              key: panel,
              content: <GroupResources query={query} onChange={change} panel={panel} />
            })),
            { key: 'devices', content: <MyDevices query={query} /> },
            { key: 'queue', content: <MyQueue query={query} /> }
          ]}
        />
      )}
    </>
  );
}
