import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from './client';
import { queries } from './queries';

export type Folder = Schemas['VFolder'];
type NewFolder = Schemas['NewVFolder'];

interface FolderList {
  limit: number;
  offset: number;
  sort: string;
  filters: Record<string, string>;
}

export const foldersQuery = (list: FolderList) =>
  queryOptions({
    queryKey: ['folders', 'list', list],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/vfolders', {
          signal,
          params: {
            query: { limit: list.limit, offset: list.offset, sort: list.sort, ...list.filters }
          }
        })
      ),
    placeholderData: keepPreviousData
  });

export const invitationsQuery = queryOptions({
  queryKey: ['folders', 'invitations'],
  queryFn: ({ signal }) => unwrap(api.GET('/vfolder-invitations', { signal }))
});

const refresh = () => queries.invalidateQueries({ queryKey: ['folders'] });

export function useCreateFolder() {
  return useMutation({
    mutationFn: (body: { name: string }) =>
      unwrap(api.POST('/vfolders', { body: body as NewFolder })),
    onSettled: refresh
  });
}

/** Accept or decline an invitation to a folder. */
export function useAnswerInvitation() {
  return useMutation({
    mutationFn: ({ id, accept }: { id: string; accept: boolean }) => {
      const params = { path: { key: id } };
      return unwrap(
        accept
          ? api.POST('/vfolder-invitations/{key}/accept', { params })
          : api.POST('/vfolder-invitations/{key}/decline', { params })
      );
    },
    onSettled: refresh
  });
}
