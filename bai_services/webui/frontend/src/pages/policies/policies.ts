import type { Column, Entity, Field } from '../../components/entities/entity';

const SLOTS: Field = { key: 'total_resource_slots', kind: 'slots' };
const SESSIONS: Field = {
  key: 'max_concurrent_sessions',
  kind: 'number',
  isNullable: true,
  noLimit: null
};
const PENDING: Field = {
  key: 'max_pending_sessions',
  kind: 'number',
  isNullable: true,
  noLimit: null
};
const NAME: Field = { key: 'name', kind: 'text', isRequired: true, only: 'create' };
const FOLDERS: readonly Field[] = [
  { key: 'max_vfolder_count', kind: 'number', noLimit: 0 },
  { key: 'max_quota_scope_bytes', kind: 'number', noLimit: -1 }
];

function policy(name: string, path: Entity['path'], fields: readonly Field[]): Entity {
  const columns: Column[] = fields.map(({ key, noLimit }, place) => ({
    key,
    ...(noLimit === undefined ? {} : { noLimit }),
    isSortable: key === 'name' || key.startsWith('max_'),
    isOptional: place > 6
  }));
  return {
    name,
    path,
    id: 'name',
    defaultSort: 'name',
    columns: [...columns, { key: 'created_at', isSortable: true, isOptional: true }],
    filters: [{ key: 'name__contains' }],
    fields,
    writers: ['superadmin'],
    canCreate: true,
    canDelete: true
  };
}

export const POLICIES: readonly Entity[] = [
  policy('keypair-policies', '/keypair-policies', [
    NAME,
    SLOTS,
    { key: 'default_for_unspecified', kind: 'choice', choices: ['LIMITED', 'UNLIMITED'] },
    SESSIONS,
    PENDING,
    { key: 'max_session_lifetime_seconds', kind: 'duration', noLimit: 0 },
    { key: 'idle_timeout_seconds', kind: 'duration', noLimit: 0 },
    { key: 'max_lifetime_extension_seconds', kind: 'duration' },
    { key: 'max_pending_slots', kind: 'slots', isNullable: true, noLimit: null },
    { key: 'max_priority', kind: 'number', isNullable: true, noLimit: null },
    { key: 'max_containers_per_session', kind: 'number' },
    { key: 'allowed_vfolder_hosts', kind: 'hosts' }
  ]),
  policy('user-policies', '/user-policies', [
    NAME,
    SLOTS,
    SESSIONS,
    PENDING,
    ...FOLDERS,
    { key: 'max_concurrent_logins', kind: 'number', isNullable: true, noLimit: null },
    { key: 'app_sharing', kind: 'choice', choices: ['none', 'user', 'project', 'public'] },
    { key: 'max_app_share_seconds', kind: 'duration', noLimit: 0 },
    { key: 'max_schedules', kind: 'number', isNullable: true, noLimit: null },
    { key: 'max_custom_images', kind: 'number', isNullable: true, noLimit: null },
    { key: 'allows_public_endpoints', kind: 'switch' }
  ]),
  policy('project-policies', '/project-policies', [
    NAME,
    ...FOLDERS,
    { key: 'max_custom_images', kind: 'number', isNullable: true, noLimit: null },
    { key: 'allows_member_imports', kind: 'switch' }
  ])
];
