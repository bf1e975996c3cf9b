import { Progress } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import type { Item } from '../../data/entities';
import { meQuery } from '../../data/accounts/me';
import { HostPermissions } from './HostPermissions';
import { HostQuotas } from './HostQuotas';
import type { Entity } from '../../components/entities/entity';
import { EntityPage } from '../../components/entities/EntityPage';

const STORAGE_HOSTS: Entity = {
  name: 'storage-hosts',
  path: '/storage-hosts',
  id: 'name',
  defaultSort: 'name',
  columns: [
    { key: 'name' },
    { key: 'backend' },
    { key: 'status' },
    { key: 'message', hasSentences: true },
    { key: 'usage', render: host => <HostUsage host={host} /> },
    { key: 'total_bytes' },
    { key: 'free_bytes', isOptional: true },
    { key: 'capabilities' },
    { key: 'is_default' },
    { key: 'permissions', isOptional: true },
    { key: 'path', isOptional: true },
    { key: 'checked_at', isOptional: true }
  ],
  filters: [],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false
};

const QUOTA_SCOPES: Entity = {
  name: 'quota-scopes',
  path: '/quota-scopes',
  id: 'scope',
  defaultSort: '-used_bytes',
  columns: [
    { key: 'scope', isSortable: true },
    { key: 'host', isSortable: true },
    { key: 'owner', isSortable: true },
    { key: 'project', isSortable: true },
    { key: 'used_bytes', isSortable: true },
    { key: 'limit_bytes', isSortable: true },
    { key: 'is_enforced' },
    { key: 'source', isOptional: true },
    { key: 'policy_bytes', isSortable: true, isOptional: true },
    { key: 'override_bytes', isSortable: true, isOptional: true },
    { key: 'domain', isSortable: true, isOptional: true },
    { key: 'counted_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'owner__contains' }, { key: 'project__contains' }, { key: 'host' }],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false
};

function HostUsage({ host }: { host: Item }) {
  const { t, i18n } = useTranslation();
  const total = Number(host['total_bytes']);
  const used = total - Number(host['free_bytes']);
  return (
    <div style={{ minWidth: 140 }}>
      <small>{formatBytes(used, i18n.language)}</small>
      <Progress
        size="small"
        percent={total > 0 ? Math.round((100 * used) / total) : 0}
        aria-label={t('storage-hosts.usage')}
      />
    </div>
  );
}

/** Storage hosts with their quotas and permissions; usage by user and project. */
export function StoragePage() {
  const { data: me } = useQuery(meQuery);
  const isSuperadmin = me?.role === 'superadmin';
  return (
    <EntityPage
      path="/storage"
      title="pages.storage"
      entities={[STORAGE_HOSTS, QUOTA_SCOPES]}
      details={(entity, item) =>
        entity === STORAGE_HOSTS && (
          <>
            <HostQuotas host={String(item['name'])} isWriter={isSuperadmin} />
            <HostPermissions host={String(item['name'])} isWriter={isSuperadmin} />
          </>
        )
      }
    />
  );
}
