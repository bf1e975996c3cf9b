import type { Entity } from '../../components/entities/entity';

/** Invitations that let users create their own accounts. */
export const INVITATIONS: Entity = {
  name: 'sign-up-invitations',
  path: '/sign-up-invitations',
  id: 'id',
  defaultSort: '-created_at',
  columns: [
    { key: 'description', isSortable: true },
    { key: 'domain', isSortable: true },
    { key: 'project' },
    { key: 'uses', isSortable: true },
    { key: 'max_uses', isSortable: true },
    { key: 'expires_at', isSortable: true },
    { key: 'created_by', isSortable: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'description__contains' }, { key: 'created_by__contains' }, { key: 'domain' }],
  fields: [
    { key: 'description', kind: 'text', isRequired: true, only: 'create' },
    {
      key: 'domain',
      kind: 'reference',
      of: { path: '/domains', name: 'name' },
      default: me => me.domain,
      writers: ['superadmin'],
      only: 'create'
    },
    {
      key: 'project',
      kind: 'reference',
      of: { path: '/projects', name: 'name' },
      default: 'default',
      only: 'create'
    },
    { key: 'max_uses', kind: 'number', default: '1', only: 'create' },
    { key: 'valid_days', kind: 'number', default: '7', only: 'create' }
  ],
  writers: ['admin', 'superadmin'],
  canCreate: true,
  canDelete: true
};
