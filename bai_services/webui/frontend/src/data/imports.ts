import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from './client';
import { queries } from './queries';

export type FolderImport = Schemas['FolderImport'];
export type ImportPreview = Schemas['ImportPreview'];
export type ImportSource = Partial<Schemas['ImportSource']> & { repo: string };
export type NewFolderImport = Partial<Schemas['NewFolderImport']> & { repo: string };

const REFRESH_MILLIS = 1_000;
const ENDED: readonly string[] = ['done', 'failed', 'cancelled'];

export const hasEnded = ({ status }: FolderImport) => ENDED.includes(status);

const refreshImports = () =>
  queries.invalidateQueries({ queryKey: ['entities', '/folder-imports'] });

/** Preview of an import, for which the server fetches nothing. */
export const importPreviewQuery = (source: ImportSource) =>
  queryOptions({
    queryKey: ['import-preview', source],
    queryFn: ({ signal }) =>
      unwrap(
        api.POST('/folder-imports/preview', { signal, body: source as Schemas['ImportSource'] })
      ),
    enabled: source.repo !== '',
    placeholderData: keepPreviousData,
    retry: false
  });

/** An import, which is polled until it has ended. */
export const importQuery = (key: string) =>
  queryOptions({
    queryKey: ['entities', '/folder-imports', key],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/folder-imports/{key}', { signal, params: { path: { key } } })),
    refetchInterval: ({ state }) => (state.data && hasEnded(state.data) ? false : REFRESH_MILLIS)
  });

export function useCreateImport() {
  return useMutation({
    mutationFn: (body: NewFolderImport) =>
      unwrap(api.POST('/folder-imports', { body: body as Schemas['NewFolderImport'] })),
    onSettled: async () => {
      await refreshImports();
      await queries.invalidateQueries({ queryKey: ['folders'] });
    }
  });
}

export function useCancelFolderImport() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.DELETE('/folder-imports/{key}', { params: { path: { key } } })),
    onSettled: refreshImports
  });
}
