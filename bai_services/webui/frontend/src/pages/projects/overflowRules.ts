import { USABLE_PROJECTS, type Entity } from '../../components/entities/entity';
import { CHANGED_BY_ROLE, isChangeableBy } from '../../components/entities/sharedObjects';

const GROUP = { path: '/resource-groups', name: 'name' } as const;

/** Rules by which pending sessions of a project move to another resource group. */
export const OVERFLOW_RULES: Entity = {
  name: 'overflow-rules',
  path: '/overflow-rules',
  id: 'id',
  defaultSort: 'project',
  columns: [
    { key: 'project', isSortable: true },
    { key: 'domain', isSortable: true },
    { key: 'from_group', isSortable: true },
    { key: 'to_group', isSortable: true },
    { key: 'after_seconds', isSortable: true },
    { key: 'position', isSortable: true },
    CHANGED_BY_ROLE,
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'project__contains' },
    { key: 'domain' },
    { key: 'from_group' },
    { key: 'to_group' }
  ],
  fields: [
    { key: 'project', kind: 'reference', of: USABLE_PROJECTS, isRequired: true, only: 'create' },
    { key: 'from_group', kind: 'reference', of: GROUP, isRequired: true, only: 'create' },
    { key: 'to_group', kind: 'reference', of: GROUP, isRequired: true, only: 'create' },
    { key: 'after_seconds', kind: 'duration', default: '5min' },
    { key: 'position', kind: 'number', default: '0' }
  ],
  writers: ['admin', 'superadmin'],
  isWritable: isChangeableBy,
  canCreate: true,
  canDelete: true
};
