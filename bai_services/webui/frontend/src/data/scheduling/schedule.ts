import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas } from '../client';

export type Schedule = Schemas['Schedule'];
export type ScheduledSession = Schemas['ScheduledSession'];
export type ScheduledReservation = Schemas['ScheduledReservation'];
export type Lane = Schemas['Lane'];

/** Poll: the remaining times decrease without an event. */
const REFRESH_MILLIS = 30_000;

/**
 * The running and pending sessions of a resource group; changes of sessions invalidate the query.
 */
export const scheduleQuery = (group: string) =>
  queryOptions({
    queryKey: ['sessions', 'schedule', group],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/resource-groups/{key}/schedule', { signal, params: { path: { key: group } } })
      ),
    refetchInterval: REFRESH_MILLIS,
    placeholderData: keepPreviousData
  });

/** The names of all resource groups; the default group is the first. */
export const groupNamesQuery = queryOptions({
  queryKey: ['entities', '/resource-groups', 'names'],
  queryFn: ({ signal }) =>
    allItems(page => {
      const query = { ...page, sort: '-is_default,name' };
      return unwrap(api.GET('/resource-groups', { signal, params: { query } }));
    }),
  select: groups => groups.map(group => group.name)
});
