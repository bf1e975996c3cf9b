import { activationViews, BY_FLAG, type Entity } from '../../components/entities/entity';
import { EntityPage } from '../../components/entities/EntityPage';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { meQuery } from '../../data/accounts/me';
import { Aliases } from './Aliases';
import { AppsForm } from './AppsForm';
import { ImageAgents } from './ImageAgents';
import { ImageSbom } from './ImageSbom';
import { partsOf } from './imageApps';
import { PruneImages } from './PruneImages';
import { PullImages } from './PullImages';
import { PULLS } from './pulls';
import { REGISTRIES } from './registries';

const IMAGES: Entity = {
  name: 'images',
  path: '/images',
  id: 'id',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    {
      key: 'registry',
      isOptional: true,
      isSortable: true
    },
    { key: 'tag', isOptional: true, render: image => partsOf(String(image['name'])).tag || '–' },
    { key: 'architecture', isSortable: true },
    { key: 'role', isOptional: true },
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
    { key: 'registry_digest', isOptional: true },
    { key: 'registry_problem', isOptional: true },
    { key: 'labels', isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'name__contains' }, { key: 'registry' }, { key: 'architecture' }],
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
  views: activationViews(BY_FLAG),
  activation: BY_FLAG
};

/** Registered images with their limits and labels, aliases and apps. */
export function ImagesPage() {
  const { data: me } = useQuery(meQuery);
  const navigate = useNavigate();
  const isWriter = IMAGES.writers.some(role => role === me?.role);
  return (
    <EntityPage
      path="/images"
      title="pages.images"
      entities={isWriter ? [IMAGES, PULLS, REGISTRIES] : [IMAGES, PULLS]}
      toolbar={entity =>
        entity !== REGISTRIES && (
          <>
            <PullImages
              onPulled={() => void navigate({ to: '/images', search: { tab: PULLS.name } })}
            />
            <PruneImages />
          </>
        )
      }
      details={(entity, image) =>
        entity === IMAGES && (
          <>
            <ImageAgents image={image} />
            <ImageSbom key={String(image['id'])} image={image} />
            {isWriter && (
              <>
                <Aliases image={image} />
                <AppsForm key={JSON.stringify(image['labels'])} image={image} />
              </>
            )}
          </>
        )
      }
    />
  );
}
