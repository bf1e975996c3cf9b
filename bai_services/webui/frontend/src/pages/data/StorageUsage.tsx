import { Card, Flex, Progress, Tag, Tooltip, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { scopeTitle, usageText } from '../../components/storageScope';
import {
  hostsQuery,
  ownQuotasQuery,
  type QuotaScope,
  type StorageHost
} from '../../data/folders/folders';
import { replacesData } from '../../data/connection';

/** Each storage host with its state, its free space, and the usage of the user and the projects. */
export function StorageUsage() {
  const { t, i18n } = useTranslation();
  const hosts = useQuery(hostsQuery);
  const scopes = useQuery(ownQuotasQuery).data ?? [];
  if (replacesData(hosts.error, hosts.data)) {
    return <ErrorNotice error={hosts.error} onRetry={() => void hosts.refetch()} />;
  }
  return (
    <section className="bai-cards" aria-label={t('data.storage')} style={{ marginBottom: 8 }}>
      {hosts.data?.map(host => (
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
  const name = scopeTitle(t, scope);
  return (
    <div>
      <Flex justify="space-between" gap="small">
        <span>{name}</span>
        <span>{usageText(t, i18n.language, scope)}</span>
      </Flex>
      {scope.percent !== null && (
        <Progress
          size="small"
          showInfo={false}
          percent={scope.percent}
          status={scope.percent >= 100 ? 'exception' : 'normal'}
          aria-label={name}
        />
      )}
    </div>
  );
}
