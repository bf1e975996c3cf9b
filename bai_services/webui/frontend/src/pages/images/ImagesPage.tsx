import { activityViews, BY_FLAG, type Entity } from '../../components/entities/entity';
import { EntityPage } from '../../components/entities/EntityPage';

const IMAGES: Entity = {
  name: 'images',
  path: '/images',
  id: 'id',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    { key: 'architecture', isSortable: true },
    { key: 'description' },
    { key: 'size_bytes', isSortable: true },
    { key: 'min_slots' },
    { key: 'max_slots', isOptional: true },
    { key: 'preferred_slots', isOptional: true },
    { key: 'aliases' },
    { key: 'apps', isOptional: true },
    { key: 'features', isOptional: true },
    { key: 'is_active', isSortable: true },
    { key: 'is_private', isOptional: true },
    { key: 'digest', isOptional: true },
    { key: 'labels', isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'name__contains' }, { key: 'architecture' }],
  fields: [
    { key: 'name', kind: 'text', isRequired: true },
    { key: 'architecture', kind: 'text', only: 'create' },
    { key: 'description', kind: 'text' },
    { key: 'min_slots', kind: 'slots' },
    { key: 'max_slots', kind: 'slots' },
    { key: 'labels', kind: 'json' },
    { key: 'is_active', kind: 'switch', only: 'change' },
    { key: 'digest', kind: 'text' },
    { key: 'size_bytes', kind: 'number' }
  ],
  writers: ['superadmin'],
  canCreate: true,
  canDelete: true,
  views: activityViews(BY_FLAG),
  activation: BY_FLAG
};

/** Registered images with their limits and labels. */
export function ImagesPage() {
  return <EntityPage path="/images" title="pages.images" entities={[IMAGES]} />;
}
