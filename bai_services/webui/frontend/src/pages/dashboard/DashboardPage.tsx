import { Flex, Select, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../../data/me';
import { useChosenProject } from '../../data/project';
import { GroupResources, MyQuotas } from './MyQuotas';
import { MyDevices, MyQueue, MySessions } from './MySessions';
import type { DashboardSearch } from './search';

const route = getRouteApi('/dashboard');

/** The user's sessions, quotas, resources and queue; changes of sessions update it. */
export function DashboardPage() {
  const { t } = useTranslation();
  const chosen = useChosenProject();
  const search = { ...(chosen ? { project: chosen.name } : {}), ...route.useSearch() };
  const navigate = route.useNavigate();
  const { data: me } = useQuery(meQuery);
  const change = (changes: DashboardSearch) =>
    void navigate({ search: old => ({ ...old, ...changes }) });
  const projects = me?.projects ?? [];
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
            // Reset the group, because another project may have other groups.
            onChange={(project: string | null) =>
              void navigate({ search: project ? { project } : {} })
            }
            aria-label={t('dashboard.project')}
            style={{ minWidth: 160 }}
          />
        )}
      </Flex>
      <div className="bai-cards bai-widgets">
        {me && <MySessions owner={me.username} />}
        <GroupResources target={search} onChange={change} />
        <MyQuotas target={search} />
        {me && <MyDevices owner={me.username} />}
        {me && <MyQueue owner={me.username} />}
      </div>
    </>
  );
}
