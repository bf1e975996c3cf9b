import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

/** Maximum number of kernels of a session. */
export const MAX_KERNELS = 64;

export type SessionOptions = Schemas['SessionOptions'];
export type SessionPreview = Schemas['SessionPreview'];
export type SlotLimit = Schemas['SlotLimit'];
export type Template = Schemas['Template'];
/** The fields of a new session; omitted fields have the defaults of the API. */
export type SessionRequest = Partial<Schemas['SessionRequest']> & { owner?: string };

/**
 * Options for a new session of an owner (empty: the user) in a project and a resource group (empty:
 * the defaults), with the free resources.
 */
export const optionsQuery = (project = '', group = '', owner = '') =>
  queryOptions({
    // The key begins with "sessions", because changes of sessions change the free resources.
    queryKey: ['sessions', 'options', project, group, owner],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/sessions/options', {
          signal,
          params: {
            query: {
              ...(project ? { project } : {}),
              ...(group ? { resource_group: group } : {}),
              ...(owner ? { owner } : {})
            }
          }
        })
      ),
    placeholderData: keepPreviousData
  });

/** Preview of a session: its problems, its expected start and its use of quotas. */
export const previewQuery = (request: SessionRequest) =>
  queryOptions({
    queryKey: ['sessions', 'preview', request],
    queryFn: ({ signal }) =>
      unwrap(api.POST('/sessions/preview', { signal, body: request as Schemas['OwnedSession'] })),
    placeholderData: keepPreviousData
  });

/** The agents of a resource group that accept sessions, with their free resources. */
export const placeableAgentsQuery = (group: string) =>
  queryOptions({
    queryKey: ['sessions', 'agents', group],
    queryFn: ({ signal }) =>
      allItems(page => {
        const filters = { resource_group: group, status: 'ALIVE', schedulable: 'true' };
        const query = { ...page, sort: 'id', ...filters };
        return unwrap(api.GET('/agents', { signal, params: { query } }));
      })
  });

export const templatesQuery = queryOptions({
  queryKey: ['session-templates'],
  queryFn: ({ signal }) =>
    allItems(page => {
      const query = { ...page, sort: 'name' };
      return unwrap(api.GET('/session-templates', { signal, params: { query } }));
    })
});

/**
 * Create one session, or several with numbered names: all or none. `onError` is called even if the
 * user has left the page, unlike callbacks of `mutate`.
 */
export function useLaunch(onError?: (error: Error) => void) {
  return useMutation({
    ...(onError && { onError }),
    mutationFn: async ({ request, count }: { request: SessionRequest; count: number }) => {
      if (count === 1) {
        const body = request as Schemas['NewSession'];
        return [await unwrap(api.POST('/sessions', { body }))];
      }
      const { owner = null, ...fields } = request;
      const name = request.name ?? `session-${crypto.randomUUID().slice(0, 8)}`;
      const sessions = Array.from({ length: count }, (_, index) => ({
        ...fields,
        name: `${name}-${index + 1}`
      })) as Schemas['TemplatedSession'][];
      return (await unwrap(api.POST('/bulk-sessions', { body: { owner, sessions } }))).items;
    },
    // Discard cached lists, which lack the new sessions and could be empty.
    onSuccess: () => queries.removeQueries({ queryKey: ['sessions', 'list'], type: 'inactive' }),
    onSettled: () => queries.invalidateQueries({ queryKey: ['sessions'] })
  });
}

export function useSaveTemplate() {
  return useMutation({
    mutationFn: ({ name, request }: { name: string; request: SessionRequest }) =>
      unwrap(
        api.POST('/session-templates', {
          body: { name, request } as unknown as Schemas['NewTemplate']
        })
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: ['session-templates'] })
  });
}
