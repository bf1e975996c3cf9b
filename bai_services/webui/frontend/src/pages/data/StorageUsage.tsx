import { Card, Flex, Progress, Tag, Tooltip, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import {
  hostsQuery,
  quotasQuery,
  type QuotaScope,
  type StorageHost
} from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';

/** Each storage host with its state, its free space, and the usage of the user and the projects. */
export function StorageUsage() {
  const { t, i18n } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const hosts = useQuery(hostsQuery);
  const own = useQuery({ ...quotasQuery({ owner_id: me?.id ?? '' }), enabled: me !== undefined });
  const names = (me?.projects ?? []).map(({ name }) => name).join(',');
  const projects = useQuery({ ...quotasQuery({ project__in: names }), enabled: names !== '' });
  const scopes = [...(own.data?.items ?? []), ...(projects.data?.items ?? [])];
  if (hosts.error) {
    return <ErrorNotice error={hosts.error} onRetry={() => void hosts.refetch()} />;
  }
  return (
    <section className="bai-cards" aria-label={t('data.storage')} style={{ marginBottom: 8 }}>
      {hosts.data?.items.map(host => (
        <Card key={host.name} size="small" title={host.name} extra={<HostStatus host={host} />}>
          <Typography.Text type="secondary">
            {t('data.free', {
              free: formatBytes(host.free_bytes, i18n.language),
              total: formatBytes(host.total_bytes, i18n.language)
            })}
          </Typography.Text>
          {scopes
            .filter(scope => scope.host === host.name)
            .map(scope => (
              <ScopeUsage key={scope.scope} scope={scope} />
            ))}
        </Card>
      ))}
    </section>
  );
}

function HostStatus({ host }: { host: StorageHost }) {
  const { t } = useTranslation();
  return (
    <Tooltip title={host.message}>
      <Tag color={host.status === 'ready' ? 'default' : 'red'} style={{ marginInlineEnd: 0 }}>
        {t(`data.host-${host.status}`)}
      </Tag>
    </Tooltip>
  );
}

function ScopeUsage({ scope }: { scope: QuotaScope }) {
  const { t, i18n } = useTranslation();
  const { used_bytes: used, limit_bytes: limit } = scope;
  const name = scope.project ? t('data.project', { name: scope.project }) : t('data.yours');
  const usedText = used === null ? t('data.not-counted') : formatBytes(used, i18n.language);
  return (
    <div>
      <Flex justify="space-between" gap="small">
        <span>{name}</span>
        <span>
          {limit === null
            ? t('data.no-limit', { used: usedText })
            : t('data.used-of', { used: usedText, limit: formatBytes(limit, i18n.language) })}
        </span>
      </Flex>
      {limit !== null && limit > 0 && used !== null && (
        <Progress
          size="small"
          showInfo={false}
          percent={Math.min(100, (100 * used) / limit)}
          aria-label={name}
        />
      )}
    </div>
  );
}
