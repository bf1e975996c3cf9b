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
    { key: 'message' },
    { key: 'total_bytes' },
    { key: 'free_bytes' },
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

/** Storage hosts, and how much each user and project has on them. */
export function StoragePage() {
  return (
    <EntityPage path="/storage" title="pages.storage" entities={[STORAGE_HOSTS, QUOTA_SCOPES]} />
  );
}
