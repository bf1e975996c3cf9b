import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type QuotaScope = Schemas['QuotaScope'];

/**
 * The quota scopes of users or projects on a storage host, filtered by a part of the owner's name.
 */
export const hostScopesQuery = (
  host: string,
  owners: 'owner' | 'project',
  name: string,
  page: { limit: number; offset: number }
) => {
  // Without a name: all scopes with an owner of this kind.
  const filters = name ? { [`${owners}__contains`]: name } : { [`${owners}__ne`]: '' };
  const query = { host, sort: owners, ...filters, ...page };
  return queryOptions({
    queryKey: ['entities', '/quota-scopes', query],
    queryFn: ({ signal }) => unwrap(api.GET('/quota-scopes', { signal, params: { query } })),
    placeholderData: keepPreviousData
  });
};

/** Set the limit of a scope; -1: no limit, null: the limit of the policy. */
export function useSetQuota({ host, scope }: QuotaScope) {
  return useMutation({
    mutationFn: (limit_bytes: number | null) => {
      const params = { path: { host, scope } };
      return unwrap(api.PUT('/quota-scopes/{host}/{scope}', { params, body: { limit_bytes } }));
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ['entities'] })
  });
}
