import {
  activationViews,
  BY_FLAG,
  type Entity,
  type Field
} from '../../components/entities/entity';

const LIMITS: readonly Field[] = [
  { key: 'total_resource_slots', kind: 'slots' },
  { key: 'max_concurrent_sessions', kind: 'number', isNullable: true },
  { key: 'allowed_vfolder_hosts', kind: 'hosts' }
];

export const PROJECTS: Entity = {
  name: 'projects',
  path: '/projects',
  id: 'id',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    { key: 'domain', isSortable: true },
    { key: 'description' },
    { key: 'is_active', isSortable: true },
    { key: 'type', isOptional: true },
    { key: 'total_resource_slots' },
    { key: 'max_concurrent_sessions', isSortable: true, isOptional: true, noLimit: null },
    { key: 'allowed_vfolder_hosts', isOptional: true },
    { key: 'resource_policy', isSortable: true },
    { key: 'default_image', isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true },
    { key: 'id', isOptional: true }
  ],
  filters: [
    { key: 'name__contains' },
    { key: 'domain' },
    { key: 'resource_policy' },
    { key: 'id' }
  ],
  fields: [
    { key: 'name', kind: 'text', isRequired: true },
    {
      key: 'domain',
      kind: 'reference',
      of: { path: '/domains', name: 'name' },
      only: 'create'
    },
    { key: 'description', kind: 'text' },
    {
      key: 'type',
      kind: 'choice',
      choices: ['general', 'model-store'],
      default: 'general',
      only: 'create'
    },
    { key: 'is_active', kind: 'switch', only: 'change' },
    {
      key: 'resource_policy',
      kind: 'reference',
      of: { path: '/project-policies', name: 'name' },
      isBulkEditable: true
    },
    { key: 'default_image', kind: 'text', isNullable: true },
    ...LIMITS
  ],
  writers: ['admin', 'superadmin'],
  canCreate: true,
  canDelete: true,
  views: activationViews(BY_FLAG),
  activation: BY_FLAG
};

export const DOMAINS: Entity = {
  name: 'domains',
  path: '/domains',
  id: 'name',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    { key: 'description' },
    { key: 'is_active', isSortable: true },
    { key: 'total_resource_slots' },
    { key: 'max_concurrent_sessions', isSortable: true, noLimit: null },
    { key: 'allowed_vfolder_hosts' },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'name__contains' }],
  fields: [
    { key: 'name', kind: 'text', isRequired: true, only: 'create' },
    { key: 'description', kind: 'text' },
    { key: 'is_active', kind: 'switch', only: 'change' },
    ...LIMITS
  ],
  writers: ['superadmin'],
  canCreate: true,
  canDelete: true,
  views: activationViews(BY_FLAG),
  activation: BY_FLAG
};
