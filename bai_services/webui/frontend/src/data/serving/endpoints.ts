import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type Endpoint = Schemas['Endpoint'];
export type EndpointToken = Schemas['Token'];
export type Replica = Schemas['Replica'];
export type ReplicaChange = Schemas['ReplicaChange'];
export type Revision = Schemas['Revision'];
export type Variant = Schemas['Variant'];
export type Scaling = Schemas['Scaling'];
export type ScalingRule = NonNullable<Endpoint['scaling']>;
export type ScalingRuleInput = Partial<NonNullable<Schemas['EndpointChange']['scaling']>>;
export type LoadHistory = Schemas['LoadHistory'];
export type NewEndpoint = Schemas['NewEndpoint'];
export type NewRevision = Schemas['NewRevision'];

// The API sends no events about endpoints, so the drawer polls.
export const REFRESH_MILLIS = 5_000;

// The keys begin like those of lists, because each change of an endpoint also changes the list.
const keyOf = (key: string, part: string) => ['entities', '/endpoints', key, part];

export const refreshEndpoints = () =>
  queries.invalidateQueries({ queryKey: ['entities', '/endpoints'] });

export const endpointQuery = (key: string) =>
  queryOptions({
    queryKey: keyOf(key, 'one'),
    queryFn: ({ signal }) =>
      unwrap(api.GET('/endpoints/{key}', { signal, params: { path: { key } } })),
    // Stop polling after an error: a deleted endpoint does not come back.
    refetchInterval: query => (query.state.status === 'error' ? false : REFRESH_MILLIS)
  });

/** The revisions that the manager keeps (about ten), the newest first. */
export const revisionsQuery = (key: string) =>
  queryOptions({
    queryKey: keyOf(key, 'revisions'),
    queryFn: ({ signal }) =>
      allItems(page => {
        const query = { ...page, sort: '-number' };
        const params = { path: { key }, query };
        return unwrap(api.GET('/endpoints/{key}/revisions', { signal, params }));
      }),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MILLIS
  });

/** The newest replica of an endpoint that has not started yet. */
export const startingReplicaQuery = (key: string) =>
  queryOptions({
    queryKey: keyOf(key, 'starting-replica'),
    queryFn: ({ signal }) => {
      const query = { phase: 'starting', sort: '-created_at', limit: 1, offset: 0 };
      const params = { path: { key }, query };
      return unwrap(api.GET('/endpoints/{key}/replicas', { signal, params }));
    },
    select: (page: { items: Replica[] }) => page.items[0],
    refetchInterval: REFRESH_MILLIS
  });

/** The phases of a replica, the newest first. */
export const replicaHistoryQuery = (key: string, replica: string) =>
  queryOptions({
    queryKey: keyOf(key, `history-of-${replica}`),
    queryFn: ({ signal }) =>
      allItems(page => {
        const params = { path: { key, replica }, query: { ...page, sort: '-id' } };
        return unwrap(api.GET('/endpoints/{key}/replicas/{replica}/history', { signal, params }));
      }),
    refetchInterval: REFRESH_MILLIS
  });

/** The load and the replicas of an endpoint with a rule in the last hour. */
export const loadQuery = (key: string) =>
  queryOptions({
    queryKey: keyOf(key, 'load'),
    queryFn: ({ signal }) =>
      unwrap(api.GET('/endpoints/{key}/load', { signal, params: { path: { key } } })),
    refetchInterval: REFRESH_MILLIS
  });

/** Number of tokens for an endpoint. */
export const tokenCountQuery = (key: string) =>
  queryOptions({
    queryKey: keyOf(key, 'token-count'),
    queryFn: ({ signal }) => {
      const params = { path: { key }, query: { limit: 1, offset: 0 } };
      return unwrap(api.GET('/endpoints/{key}/tokens', { signal, params }));
    },
    select: (page: { total: number }) => page.total
  });

export const variantsQuery = queryOptions({
  queryKey: ['runtime-variants'],
  queryFn: ({ signal }) =>
    allItems(page => unwrap(api.GET('/runtime-variants', { signal, params: { query: page } }))),
  staleTime: Infinity
});

export function useCreateEndpoint() {
  return useMutation({
    mutationFn: (body: NewEndpoint) => unwrap(api.POST('/endpoints', { body })),
    onSettled: refreshEndpoints
  });
}

export function useDeploy(key: string) {
  return useMutation({
    mutationFn: (body: NewRevision) =>
      unwrap(api.POST('/endpoints/{key}/revisions', { params: { path: { key } }, body })),
    onSettled: refreshEndpoints
  });
}

export interface EndpointChange {
  is_paused?: boolean;
  replicas?: number;
  scaling?: ScalingRuleInput;
}

export function useChangeEndpoint(key: string) {
  return useMutation({
    mutationFn: (changes: EndpointChange) => {
      const body = changes as Schemas['EndpointChange'];
      return unwrap(api.PATCH('/endpoints/{key}', { params: { path: { key } }, body }));
    },
    onSettled: refreshEndpoints
  });
}

export function useRollBack(key: string) {
  return useMutation({
    mutationFn: (revision: number) =>
      unwrap(
        api.POST('/endpoints/{key}/rollback', { params: { path: { key } }, body: { revision } })
      ),
    onSettled: refreshEndpoints
  });
}

export function usePromote(key: string) {
  return useMutation({
    mutationFn: () =>
      unwrap(api.POST('/endpoints/{key}/promotion', { params: { path: { key } }, body: {} })),
    onSettled: refreshEndpoints
  });
}

export function useDeleteEndpoint(key: string) {
  return useMutation({
    mutationFn: () => unwrap(api.DELETE('/endpoints/{key}', { params: { path: { key } } })),
    onSettled: refreshEndpoints
  });
}

export function useRevokeToken(key: string) {
  return useMutation({
    mutationFn: (token: string) =>
      unwrap(api.DELETE('/endpoints/{key}/tokens/{token}', { params: { path: { key, token } } })),
    onSettled: refreshEndpoints
  });
}

export function useCheckDefinition() {
  return useMutation({
    mutationFn: (definition: string) =>
      unwrap(api.POST('/model-definitions/check', { body: { definition } }))
  });
}
