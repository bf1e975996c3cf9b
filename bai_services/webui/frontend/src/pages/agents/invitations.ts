import type { Entity } from '../../components/entities/entity';

/** Invitations with which machines join as agents. */
export const INVITATIONS: Entity = {
  name: 'agent-invitations',
  path: '/agent-invitations',
  id: 'id',
  defaultSort: '-created_at',
  columns: [
    { key: 'resource_group', isSortable: true },
    { key: 'created_by', isSortable: true },
    { key: 'expires_at', isSortable: true },
    { key: 'used_at', isSortable: true },
    { key: 'agent_id', isSortable: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'resource_group' },
    { key: 'created_by__contains' },
    { key: 'agent_id__contains' }
  ],
  fields: [
    {
      key: 'resource_group',
      kind: 'reference',
      of: { path: '/resource-groups', name: 'name' },
      default: 'default',
      isRequired: true,
      only: 'create'
    },
    { key: 'valid_minutes', kind: 'number', default: '60', only: 'create' }
  ],
  writers: ['superadmin'],
  canCreate: true,
  canDelete: true
};
