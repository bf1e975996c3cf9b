import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from './client';

export type Dashboard = Schemas['Dashboard'];

// Poll: utilization, storage usage and the load of agents change without an event.
const REFRESH_MILLIS = 15_000;

/** The content of all cards of the dashboard; changes of sessions and folders invalidate it. */
export const dashboardQuery = (target: { project?: string; group?: string }) =>
  queryOptions({
    // The key begins with 'sessions', because a change of a session changes most of the cards.
    queryKey: ['sessions', 'dashboard', target],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/dashboard', {
          signal,
          params: {
            query: {
              ...(target.project ? { project: target.project } : {}),
              ...(target.group ? { resource_group: target.group } : {})
            }
          }
        })
      ),
    refetchInterval: REFRESH_MILLIS,
    placeholderData: keepPreviousData
  });
