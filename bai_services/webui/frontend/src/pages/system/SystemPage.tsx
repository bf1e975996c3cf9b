import { Badge, Descriptions, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { Forbidden } from '../../components/Forbidden';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import { pagesFor } from '../../app/pages';
import { meQuery } from '../../data/accounts/me';
import { ComponentSettings } from './ComponentSettings';
import { Settings } from './Settings';
import { systemQuery, type Package, type SystemInfo } from '../../data/system';

/** Versions, licenses, health, database and queue of the installation. */
export function SystemPage() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const isAllowed = pagesFor(me?.role).some(page => page.path === '/system');
  const { data, error, refetch } = useQuery({ ...systemQuery, enabled: isAllowed });
  if (me === undefined) {
    return <Skeleton active />;
  }
  if (!isAllowed) {
    return <Forbidden />;
  }
  return (
    <>
      <Typography.Title level={3} style={{ marginTop: 0 }}>
        {t('pages.system')}
      </Typography.Title>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {data ? <Facts system={data} /> : !error && <Skeleton active />}
    </>
  );
}

function Facts({ system }: { system: SystemInfo }) {
  const { t, i18n } = useTranslation();
  const health = (isOk: boolean) => (
    <Badge status={isOk ? 'success' : 'error'} text={t(isOk ? 'system.ok' : 'system.failed')} />
  );
  const counts = (numbers: Record<string, number>) =>
    Object.entries(numbers)
      .map(([status, count]) => `${status}: ${count.toLocaleString(i18n.language)}`)
      .join(', ') || '–';
  const number = (value: number) => value.toLocaleString(i18n.language);
  const facts = {
    version: system.version,
    python: system.python,
    'health-database': health(system.has_database),
    'health-hub': health(system.has_hub),
    standby: t(system.is_standby ? 'entities.yes' : 'entities.no'),
    database: `${system.database} ${system.database_version} (${system.revision})`,
    size: formatBytes(system.database_bytes, i18n.language),
    sessions: counts(system.sessions),
    agents: counts(system.agents),
    users: number(system.users),
    'masks-users': t(config.masksUsers ? 'entities.yes' : 'entities.no'),
    'audit-entries': number(system.audit_entries)
  };
  return (
    <>
      <Descriptions
        bordered
        size="small"
        column={1}
        styles={{ label: { width: '40%' } }}
        items={Object.entries(facts).map(([key, children]) => ({
          key,
          label: t(`system.${key}`),
          children
        }))}
      />
      <Settings />
      <ComponentSettings />
      <Packages title={t('system.packages')} packages={system.packages} />
      <Packages title={t('system.bundled')} packages={system.bundled} />
    </>
  );
}

function Packages({ title, packages }: { title: string; packages: Package[] }) {
  const { t } = useTranslation();
  return (
    <>
      <Typography.Title level={4}>{title}</Typography.Title>
      <ScrollArea label={title}>
        <CardTable<Package>
          rowKey={({ name, version }) => `${name} ${version}`}
          size="small"
          pagination={false}
          dataSource={packages}
          columns={[
            { key: 'name', title: t('system.name'), dataIndex: 'name' },
            { key: 'version', title: t('system.version'), dataIndex: 'version' },
            {
              key: 'licence',
              title: t('system.licence'),
              render: (_, { licence }) => licence || '–'
            }
          ]}
        />
      </ScrollArea>
    </>
  );
}
