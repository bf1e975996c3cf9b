import { queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap } from '../client';
import { queries } from '../queries';

const ACTIVE = { is_active: 'true', sort: 'name' };

const refresh = () => queries.invalidateQueries({ queryKey: ['entities'] });

/** The active images by name, for a selection: sessions can use no others. */
export const imageNamesQuery = queryOptions({
  queryKey: ['entities', '/images', 'names'],
  queryFn: ({ signal }) =>
    allItems(page =>
      unwrap(api.GET('/images', { signal, params: { query: { ...page, ...ACTIVE } } }))
    )
});

/** The active resource groups by name, for a selection. */
export const groupNamesQuery = queryOptions({
  queryKey: ['entities', '/resource-groups', 'names'],
  queryFn: ({ signal }) =>
    allItems(page =>
      unwrap(api.GET('/resource-groups', { signal, params: { query: { ...page, ...ACTIVE } } }))
    )
});

/** The agents that have an image. */
export const imageAgentsQuery = (id: string) =>
  queryOptions({
    queryKey: ['entities', '/images', 'agents', id],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/images/{key}/agents', { signal, params: { path: { key: id } } }))
  });

/** Pull images to the agents of a resource group that lack them. */
export function useCreatePulls() {
  return useMutation({
    mutationFn: (body: { images: string[]; resource_group: string }) =>
      unwrap(api.POST('/image-pulls', { body })),
    onSettled: refresh
  });
}

/** List the unused images of the agents of a resource group, or remove them. */
export function usePruneImages() {
  return useMutation({
    mutationFn: (body: { resource_group: string; unused_seconds: number; is_dry_run: boolean }) =>
      unwrap(api.POST('/image-prunes', { body })),
    onSettled: refresh
  });
}

export function useCancelPull() {
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(api.DELETE('/image-pulls/{key}', { params: { path: { key: id } } })),
    onSettled: refresh
  });
}
