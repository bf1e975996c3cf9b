import { keepPreviousData, queryOptions, useMutation, useQuery } from '@tanstack/react-query';
import { config } from '../../config';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type FileEntry = Schemas['FileEntry'];

/** Entries per request: the maximum of the API. */
export const FILES_PER_PAGE = 500;

export interface Directory {
  /** Id of the folder. */
  id: string;
  /** Path in the folder, without a slash at either end. */
  path: string;
}

export const joined = (directory: string, name: string) =>
  directory ? `${directory}/${name}` : name;

/** One page of a directory's entries, sorted and filtered by the server. */
export const filesQuery = (
  { id, path }: Directory,
  list: { sort: string; name: string; page: number }
) =>
  queryOptions({
    queryKey: ['files', id, path, list],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/vfolders/{key}/files', {
          signal,
          params: {
            path: { key: id },
            query: {
              path,
              sort: list.sort,
              limit: FILES_PER_PAGE,
              offset: list.page * FILES_PER_PAGE,
              ...(list.name ? { name__contains: list.name } : {})
            }
          }
        })
      ),
    placeholderData: keepPreviousData
  });

/**
 * The etag of a file in the list of its directory, and the time at which the list was read. The
 * etag is undefined while it is unknown, and null if the file is gone.
 */
export function useFileVersion(id: string, path: string) {
  const at = path.lastIndexOf('/');
  const name = path.slice(at + 1);
  const directory = { id, path: path.slice(0, Math.max(0, at)) };
  const { data, dataUpdatedAt: readAt } = useQuery(
    filesQuery(directory, { sort: 'name', name, page: 0 })
  );
  const found = data?.items.find(entry => entry.name === name);
  const isGone = data !== undefined && data.total === data.items.length;
  return { etag: found ? `"${found.etag}"` : isGone ? null : undefined, readAt };
}

export const refreshFiles = (id: string) => queries.invalidateQueries({ queryKey: ['files', id] });

function useFileChange<Arguments extends { id: string }, Result>(
  mutationFn: (args: Arguments) => Promise<Result>
) {
  return useMutation({ mutationFn, onSettled: (_data, _error, { id }) => refreshFiles(id) });
}

const at = (key: string) => ({ params: { path: { key } } });

export const useMakeDirectory = () =>
  useFileChange(({ id, path }: Directory) =>
    unwrap(
      api.POST('/vfolders/{key}/directories', {
        ...at(id),
        body: { paths: [path], exists_ok: false }
      })
    )
  );

interface Relocation {
  id: string;
  source: string;
  target: string;
}

export const useMoveFile = () =>
  useFileChange(({ id, source, target }: Relocation) =>
    unwrap(
      api.POST('/vfolders/{key}/move', { ...at(id), body: { source, target, replace: false } })
    )
  );

export const useCopyFile = () =>
  useFileChange(({ id, source, target }: Relocation) =>
    unwrap(api.POST('/vfolders/{key}/copy', { ...at(id), body: { source, target } }))
  );

/** Delete files, and directories with their contents; stop at the first error and throw it. */
export const useRemoveFiles = () =>
  useFileChange(async ({ id, paths }: { id: string; paths: readonly string[] }) => {
    for (const path of paths) {
      await unwrap(
        api.DELETE('/vfolders/{key}/content', {
          params: { path: { key: id }, query: { path, recursive: 'true' } }
        })
      );
    }
  });

/** The URL for downloading a file, or several files and directories as one archive. */
export function downloadUrl(id: string, entries: readonly { path: string; type: string }[]) {
  const [first] = entries;
  const isFile = entries.length === 1 && first?.type === 'file';
  const paths = entries.map(({ path }) => `path=${encodeURIComponent(path)}`).join('&');
  return `${config.api}/vfolders/${id}/${isFile ? 'content' : 'archive'}?${paths}`;
}
