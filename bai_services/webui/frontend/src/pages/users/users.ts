import {
  activationViews,
  isOwnerInReach,
  type Activation,
  type Entity,
  type Role
} from '../../components/entities/entity';
import { DefaultProject } from './DefaultProject';
import { PurgeSelected } from './PurgeSelected';

const STATUSES = ['active', 'inactive', 'before-verification'];
// Domain admins may not give roles, move users to other domains, or set container ids.
const SUPERADMIN: readonly Role[] = ['superadmin'];
const ROLES = ['user', 'admin', 'superadmin', 'monitor'];

const ACTIVATION: Activation = { key: 'status', on: 'active', off: 'inactive' };

export const USERS: Entity = {
  name: 'users',
  path: '/users',
  id: 'username',
  defaultSort: 'username',
  columns: [
    { key: 'username', isSortable: true },
    { key: 'full_name', isSortable: true },
    { key: 'email', isSortable: true },
    { key: 'role', isSortable: true },
    { key: 'domain', isSortable: true },
    { key: 'projects' },
    { key: 'status', isSortable: true },
    { key: 'resource_policy', isOptional: true },
    { key: 'awaits_approval', isOptional: true },
    { key: 'is_locked' },
    { key: 'locked_until', isOptional: true },
    { key: 'need_password_change', isOptional: true },
    { key: 'has_authenticator', isOptional: true },
    { key: 'allowed_client_ip', isOptional: true },
    { key: 'main_access_key', isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true },
    { key: 'description', isOptional: true }
  ],
  filters: [
    { key: 'username__contains' },
    { key: 'full_name__contains' },
    { key: 'email__contains' },
    { key: 'description__contains' },
    { key: 'role', choices: ROLES.map(value => ({ value, label: value })) },
    { key: 'status', choices: [...STATUSES, 'deleted'].map(value => ({ value, label: value })) },
    { key: 'domain' }
  ],
  fields: [
    { key: 'username', kind: 'text', isRequired: true, only: 'create' },
    { key: 'email', kind: 'text', isRequired: true },
    { key: 'password', kind: 'password' },
    { key: 'need_password_change', kind: 'switch' },
    { key: 'full_name', kind: 'text' },
    { key: 'description', kind: 'text' },
    { key: 'role', kind: 'choice', choices: ROLES, default: 'user', writers: SUPERADMIN },
    { key: 'status', kind: 'choice', choices: STATUSES, only: 'change', isBulkEditable: true },
    {
      key: 'domain',
      kind: 'reference',
      of: { path: '/domains', name: 'name' },
      default: me => me.domain,
      writers: SUPERADMIN,
      isBulkEditable: true
    },
    { key: 'projects', kind: 'words', isBulkEditable: true },
    {
      key: 'resource_policy',
      kind: 'reference',
      of: { path: '/user-policies', name: 'name' },
      default: 'default',
      isBulkEditable: true
    },
    {
      key: 'keypair_policy',
      kind: 'reference',
      of: { path: '/keypair-policies', name: 'name' },
      default: 'default',
      only: 'create'
    },
    { key: 'allowed_client_ip', kind: 'words', isNullable: true },
    {
      key: 'container_uid',
      kind: 'number',
      isNullable: true,
      writers: SUPERADMIN,
      isBulkEditable: true
    },
    {
      key: 'container_gid',
      kind: 'number',
      isNullable: true,
      writers: SUPERADMIN,
      isBulkEditable: true
    }
  ],
  writers: ['admin', 'superadmin'],
  isWritable: isOwnerInReach,
  canCreate: true,
  canDelete: true,
  Prefill: DefaultProject,
  BulkActions: PurgeSelected,
  views: [
    ...activationViews(ACTIVATION),
    { name: 'awaits-approval', filter: 'awaits_approval', value: 'true' }
  ],
  activation: ACTIVATION
};
