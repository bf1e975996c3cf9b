import { queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';
import { refreshEndpoints } from './endpoints';

export type ModelCard = Schemas['ModelCard'];
export type ModelImport = Schemas['ModelImport'];
export type Deployment = Partial<Schemas['Deployment']>;
export type ModelClone = Partial<Schemas['ModelClone']>;
export type NewModelImport = Partial<Schemas['NewModelImport']>;

const CLONE_REFRESH_MILLIS = 2_000;

// The keys begin like those of lists, because a refreshed card also changes the list.
const keyOf = (key: string, part: string) => ['entities', '/models', key, part];
const at = (key: string) => ({ params: { path: { key } } });

export const refreshModels = () => queries.invalidateQueries({ queryKey: ['entities', '/models'] });
const refreshImports = () =>
  queries.invalidateQueries({ queryKey: ['entities', '/model-imports'] });

export const modelQuery = (key: string) =>
  queryOptions({
    queryKey: keyOf(key, 'one'),
    queryFn: ({ signal }) => unwrap(api.GET('/models/{key}', { signal, ...at(key) }))
  });

const MAX_NAMED_MODELS = 20;

/** The models whose files are in the folders, and their number. */
export const modelsInQuery = (folders: string[]) =>
  queryOptions({
    queryKey: ['entities', '/models', 'in', folders],
    queryFn: ({ signal }) => {
      const query = { id__in: folders.join(','), limit: MAX_NAMED_MODELS };
      return unwrap(api.GET('/models', { signal, params: { query } }));
    }
  });

export const readmeQuery = (key: string) =>
  queryOptions({
    queryKey: keyOf(key, 'readme'),
    queryFn: ({ signal }) => unwrap(api.GET('/models/{key}/readme', { signal, ...at(key) })),
    select: ({ text }: { text: string }) => text
  });

export const versionsQuery = (key: string) =>
  queryOptions({
    queryKey: keyOf(key, 'versions'),
    queryFn: ({ signal }) =>
      allItems(page => {
        const params = { path: { key }, query: { ...page, sort: '-created_at' } };
        return unwrap(api.GET('/models/{key}/versions', { signal, params }));
      })
  });

/** The model stores that the user sees. */
export const storesQuery = queryOptions({
  queryKey: ['entities', '/projects', 'stores'],
  queryFn: ({ signal }) =>
    allItems(page => {
      const query = { ...page, sort: 'name', type: 'model-store' };
      return unwrap(api.GET('/projects', { signal, params: { query } }));
    })
});

export const presetsQuery = (project: string) =>
  queryOptions({
    queryKey: ['entities', '/presets', 'of-project', project],
    queryFn: ({ signal }) =>
      allItems(page => {
        const query = { ...page, sort: 'name', ...(project && { project }) };
        return unwrap(api.GET('/presets', { signal, params: { query } }));
      })
  });

/** The folder of a clone, polled while its files are being copied. */
export const cloneQuery = (id: string) =>
  queryOptions({
    queryKey: ['model-clone', id],
    queryFn: ({ signal }) => unwrap(api.GET('/vfolders/{key}', { signal, ...at(id) })),
    refetchInterval: ({ state }) =>
      state.data?.status === 'cloning' ? CLONE_REFRESH_MILLIS : false
  });

/** Read the card of a folder again. */
export async function refreshCard(key: string): Promise<ModelCard> {
  try {
    return await unwrap(api.POST('/models/{key}/refresh', { ...at(key), body: {} }));
  } finally {
    void refreshModels();
  }
}

export const useRefreshModel = (key: string) => useMutation({ mutationFn: () => refreshCard(key) });

export function useCloneModel(key: string) {
  return useMutation({
    mutationFn: (body: ModelClone) =>
      unwrap(api.POST('/models/{key}/clone', { ...at(key), body: body as Schemas['ModelClone'] }))
  });
}

export function useDeployModel(key: string) {
  return useMutation({
    mutationFn: (body: Deployment) =>
      unwrap(
        api.POST('/models/{key}/deployment', { ...at(key), body: body as Schemas['Deployment'] })
      ),
    onSettled: refreshEndpoints
  });
}

export function useImportModel() {
  return useMutation({
    mutationFn: (body: NewModelImport) =>
      unwrap(api.POST('/model-imports', { body: body as Schemas['NewModelImport'] })),
    onSettled: refreshImports
  });
}

export function useApproveImport() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.POST('/model-imports/{key}/approval', { ...at(key), body: {} })),
    onSettled: refreshImports
  });
}

export function useRetryImport() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.POST('/model-imports/{key}/retry', { ...at(key), body: {} })),
    onSettled: refreshImports
  });
}

export function useCancelImport() {
  return useMutation({
    mutationFn: (key: string) => unwrap(api.DELETE('/model-imports/{key}', at(key))),
    onSettled: refreshImports
  });
}
