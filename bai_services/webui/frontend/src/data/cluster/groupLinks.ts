import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap } from '../client';
import { queries } from '../queries';

const refresh = () => queries.invalidateQueries({ queryKey: ['entities'] });

/** Kinds of objects that an administrator can link to a non-public group to allow its use. */
export const LINK_KINDS = ['domain', 'project', 'user', 'keypair'] as const;

/** A page of the objects that are linked to a group. */
export const linksQuery = (group: string, page: { limit: number; offset: number }) =>
  queryOptions({
    queryKey: ['entities', '/resource-groups', 'links', group, page],
    queryFn: ({ signal }) => {
      const params = { path: { key: group }, query: page };
      return unwrap(api.GET('/resource-groups/{key}/links', { signal, params }));
    },
    placeholderData: keepPreviousData
  });

export interface LinkChange {
  kind: string;
  /** Id or name. */
  target: string;
  isLinked: boolean;
}

export function useChangeLink(group: string) {
  return useMutation({
    mutationFn: async ({ kind, target, isLinked }: LinkChange) => {
      const params = { path: { key: group, kind, target } };
      await (isLinked
        ? unwrap(api.PUT('/resource-groups/{key}/links/{kind}/{target}', { params }))
        : unwrap(api.DELETE('/resource-groups/{key}/links/{kind}/{target}', { params })));
    },
    onSettled: refresh
  });
}
