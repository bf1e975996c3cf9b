import {
  activationViews,
  BY_FLAG,
  isOwnerInReach,
  type Entity
} from '../../components/entities/entity';

// Requests per 15 minutes. Programs that sign their requests with the keypair soon reach a lower
// limit.
const LOW_RATE_LIMIT = 101;

export const KEYPAIRS: Entity = {
  name: 'keypairs',
  path: '/keypairs',
  id: 'access_key',
  defaultSort: '-created_at',
  columns: [
    { key: 'access_key' },
    { key: 'user', isSortable: true },
    { key: 'role' },
    { key: 'domain', isSortable: true },
    { key: 'is_active', isSortable: true },
    { key: 'is_main' },
    { key: 'resource_policy', isSortable: true },
    { key: 'rate_limit', isSortable: true, isOptional: true },
    { key: 'last_used', isSortable: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'user__contains' }, { key: 'access_key__contains' }, { key: 'resource_policy' }],
  fields: [
    {
      key: 'user',
      kind: 'reference',
      of: { path: '/users', name: 'username' },
      isRequired: true,
      only: 'create'
    },
    {
      key: 'resource_policy',
      kind: 'reference',
      of: { path: '/keypair-policies', name: 'name' },
      isBulkEditable: true
    },
    { key: 'rate_limit', kind: 'number', warnBelow: LOW_RATE_LIMIT, isBulkEditable: true },
    { key: 'is_active', kind: 'switch', only: 'change' },
    { key: 'is_main', kind: 'switch' }
  ],
  writers: ['admin', 'superadmin'],
  isWritable: isOwnerInReach,
  canCreate: true,
  canDelete: true,
  isDeletable: keypair => keypair['is_active'] === false && keypair['is_main'] === false,
  views: activationViews(BY_FLAG),
  activation: BY_FLAG
};
