import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

export type Preemption = Schemas['Preemption'];

const SHOWN = 50;

/** The latest preemptions in a resource group; changes of sessions invalidate the query. */
export const preemptionsQuery = (group: string) =>
  queryOptions({
    queryKey: ['sessions', 'preemptions', group],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/preemptions', {
          signal,
          params: { query: { resource_group: group, limit: SHOWN, sort: '-created_at' } }
        })
      ),
    placeholderData: keepPreviousData
  });
