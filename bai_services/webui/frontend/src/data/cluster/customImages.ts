import { queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap } from '../client';
import { queries } from '../queries';
import type { components } from '../schema';

export type NewCommit = components['schemas']['NewCommit'];
export type NewBuild = components['schemas']['NewBuild'];

const LOG_REFRESH_MILLIS = 2000;

const refresh = () => queries.invalidateQueries({ queryKey: ['entities'] });

/** Commit a running session to a custom image. */
export function useCommit(session: string) {
  return useMutation({
    mutationFn: (body: NewCommit) =>
      unwrap(api.POST('/sessions/{key}/commit', { params: { path: { key: session } }, body })),
    onSettled: refresh
  });
}

/** Build a custom image from a recipe. */
export function useBuild() {
  return useMutation({
    mutationFn: (body: NewBuild) => unwrap(api.POST('/custom-images', { body })),
    onSettled: refresh
  });
}

/** Read the files of a recipe from a folder or git repository. */
export function useReadRecipe() {
  return useMutation({
    mutationFn: (body: components['schemas']['RecipeSource']) =>
      unwrap(api.POST('/recipes', { body }))
  });
}

/** The output of a build. */
export const buildLogQuery = (id: string) =>
  queryOptions({
    queryKey: ['custom-images', id, 'log'],
    queryFn: async () =>
      (await unwrap(api.GET('/custom-images/{key}/log', { params: { path: { key: id } } }))).log,
    refetchInterval: LOG_REFRESH_MILLIS
  });

export function useCancelCommit() {
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(api.POST('/custom-images/{key}/cancel', { params: { path: { key: id } } })),
    onSettled: refresh
  });
}

/** Ask an administrator to publish a custom image. */
export function useRequestPublication() {
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(
        api.POST('/custom-images/{key}/publication-request', { params: { path: { key: id } } })
      ),
    onSettled: refresh
  });
}
