import type { Entity } from '../../components/entities/entity';
import { EntityPage } from '../../components/entities/EntityPage';

const PRESETS: Entity = {
  name: 'presets',
  path: '/presets',
  id: 'id',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    { key: 'resource_slots' },
    { key: 'shared_memory' },
    { key: 'resource_group', isSortable: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'name__contains' }, { key: 'resource_group' }],
  fields: [
    { key: 'name', kind: 'text', isRequired: true },
    { key: 'resource_slots', kind: 'slots', isRequired: true },
    { key: 'shared_memory', kind: 'text', isNullable: true },
    {
      key: 'resource_group',
      kind: 'reference',
      of: { path: '/resource-groups', name: 'name' },
      only: 'create'
    }
  ],
  writers: ['superadmin'],
  canCreate: true,
  canDelete: true
};

/** Resource presets. */
export function PresetsPage() {
  return <EntityPage path="/presets" title="pages.presets" entities={[PRESETS]} />;
}
