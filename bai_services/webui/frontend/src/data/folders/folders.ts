import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type Folder = Schemas['VFolder'];
export type StorageHost = Schemas['StorageHost'];
export type QuotaScope = Schemas['QuotaScope'];
export type FolderGrant = Schemas['Grant'];
export type SharePermission = Schemas['Permission'];
type NewFolder = Schemas['NewVFolder'];
type FolderClone = Schemas['VFolderClone'];
type FolderChange = Schemas['VFolderChange'];

interface FolderList {
  limit: number;
  offset: number;
  sort: string;
  filters: Record<string, string>;
}

const BUSY: readonly string[] = ['cloning', 'performing', 'delete-ongoing'];
// Busy folders are polled, because the API sends no events about the progress of their tasks.
const BUSY_POLL_MILLIS = 2_000;

/** Whether the server is still copying, moving or deleting the files. */
export const isBusy = (folder: Folder) => BUSY.includes(folder.status);

export const isWritable = (folder: Folder) =>
  folder.permission === 'rw' || folder.permission === 'wd';

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
    refetchInterval: query => (query.state.data?.items.some(isBusy) ? BUSY_POLL_MILLIS : false),
    placeholderData: keepPreviousData
  });

export const folderQuery = (id: string) =>
  queryOptions({
    queryKey: ['folders', 'one', id],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/vfolders/{key}', { signal, params: { path: { key: id } } }))
  });

/** Number of folders that match the filters. */
export const folderCountQuery = (filters: Record<string, string>) =>
  queryOptions({
    ...foldersQuery({ limit: 1, offset: 0, sort: 'name', filters }),
    select: (page: { total: number }) => page.total
  });

export const hostsQuery = queryOptions({
  queryKey: ['folders', 'hosts'],
  queryFn: ({ signal }) =>
    allItems(query => unwrap(api.GET('/storage-hosts', { signal, params: { query } })))
});

/** Usage and limits of the user and of the user's projects on all storage hosts. */
export const ownQuotasQuery = queryOptions({
  queryKey: ['folders', 'quotas'],
  queryFn: ({ signal }) =>
    allItems(page => {
      const query = { ...page, mine: 'true' };
      return unwrap(api.GET('/quota-scopes', { signal, params: { query } }));
    })
});

/** Pending invitations that a user has received. */
export const receivedInvitationsQuery = (userId: string) =>
  queryOptions({
    queryKey: ['folders', 'invitations', userId],
    queryFn: ({ signal }) =>
      allItems(page => {
        const query = { ...page, status: 'pending', invitee_id: userId };
        return unwrap(api.GET('/vfolder-invitations', { signal, params: { query } }));
      })
  });

/** Pending invitations to a folder. */
export const pendingInvitationsQuery = (id: string) =>
  queryOptions({
    queryKey: ['folders', 'pending-invitations', id],
    queryFn: ({ signal }) =>
      allItems(page => {
        const params = { path: { key: id }, query: { ...page, status: 'pending' } };
        return unwrap(api.GET('/vfolders/{key}/invitations', { signal, params }));
      })
  });

export const grantsQuery = (id: string) =>
  queryOptions({
    queryKey: ['folders', 'grants', id],
    queryFn: ({ signal }) =>
      allItems(query => {
        const params = { path: { key: id }, query };
        return unwrap(api.GET('/vfolders/{key}/grants', { signal, params }));
      })
  });

// Also refresh the options of a new session, which contain the mountable folders.
const refresh = () =>
  Promise.all(
    [['folders'], ['sessions', 'options']].map(queryKey => queries.invalidateQueries({ queryKey }))
  );

/** A mutation that invalidates all queries about folders. */
function useFolderChange<Arguments, Result>(mutationFn: (args: Arguments) => Promise<Result>) {
  return useMutation({ mutationFn, onSettled: refresh });
}

const at = (key: string) => ({ params: { path: { key } } });

export const useCreateFolder = () =>
  useFolderChange((body: Partial<NewFolder> & { name: string }) =>
    unwrap(api.POST('/vfolders', { body: body as NewFolder }))
  );

export const useChangeFolder = () =>
  useFolderChange(({ id, changes }: { id: string; changes: Partial<FolderChange> }) =>
    unwrap(api.PATCH('/vfolders/{key}', { ...at(id), body: changes as FolderChange }))
  );

export const useCloneFolder = () =>
  useFolderChange(({ id, clone }: { id: string; clone: Partial<FolderClone> }) =>
    unwrap(api.POST('/vfolders/{key}/clone', { ...at(id), body: clone as FolderClone }))
  );

export const useTransferFolder = () =>
  useFolderChange(({ id, user }: { id: string; user: string }) =>
    unwrap(api.PUT('/vfolders/{key}/owner', { ...at(id), body: { user } }))
  );

export type FolderStep = 'trash' | 'restore' | 'purge';

const STEPS: Record<FolderStep, (id: string) => Promise<unknown>> = {
  trash: id => unwrap(api.DELETE('/vfolders/{key}', at(id))),
  restore: id => unwrap(api.POST('/vfolders/{key}/restore', at(id))),
  purge: id => unwrap(api.POST('/vfolders/{key}/purge', at(id)))
};

/** Perform an action on each folder; return the folders for which it failed, with the errors. */
export const useFolderStep = () =>
  useFolderChange(async ({ folders, step }: { folders: readonly Folder[]; step: FolderStep }) => {
    const results = await Promise.allSettled(folders.map(folder => STEPS[step](folder.id)));
    return results.flatMap((result, index) => {
      const folder = folders[index];
      return result.status === 'rejected' && folder
        ? [{ folder, error: result.reason as Error }]
        : [];
    });
  });

/** Invite a user, or change the permission of a user who has access. */
export const useShareFolder = () =>
  useFolderChange((args: { id: string; user: string; permission: SharePermission }) =>
    unwrap(
      api.PUT('/vfolders/{key}/grants/{user}', {
        params: { path: { key: args.id, user: args.user } },
        body: { permission: args.permission }
      })
    )
  );

/** Stop sharing with a user; users may also leave a folder that is shared with them. */
export const useStopSharing = () =>
  useFolderChange(({ id, user }: { id: string; user: string }) =>
    unwrap(api.DELETE('/vfolders/{key}/grants/{user}', { params: { path: { key: id, user } } }))
  );

/** Accept or decline an invitation to a folder. */
export const useAnswerInvitation = () =>
  useFolderChange(({ id, accept }: { id: string; accept: boolean }) =>
    unwrap(
      accept
        ? api.POST('/vfolder-invitations/{key}/accept', at(id))
        : api.POST('/vfolder-invitations/{key}/decline', at(id))
    )
  );
