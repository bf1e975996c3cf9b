import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas } from '../client';
import { STATUS_GROUPS } from '../sessions/sessions';

export type Kernel = Schemas['Kernel'];
export type LedgerEntry = Schemas['LedgerEntry'];

/** The kernels of live or of ended sessions on an agent, newest first. */
export const kernelsQuery = (
  agent: string,
  isLive: boolean,
  { limit, offset }: { limit: number; offset: number }
) =>
  queryOptions({
    // A change of a session invalidates all queries whose key begins with "sessions".
    queryKey: ['sessions', 'kernels', agent, isLive, limit, offset],
    queryFn: ({ signal }) => {
      const statuses = isLive
        ? [...STATUS_GROUPS.running, ...STATUS_GROUPS.pending]
        : STATUS_GROUPS.ended;
      const query = {
        limit,
        offset,
        sort: '-created_at',
        agent_id: agent,
        status__in: statuses.join(',')
      };
      return unwrap(api.GET('/kernels', { signal, params: { query } }));
    },
    placeholderData: keepPreviousData
  });

/** The current allocations of the visible sessions on an agent; released ones are not included. */
export const allocationsQuery = (agent: string) =>
  queryOptions({
    queryKey: ['sessions', 'allocations', agent],
    queryFn: ({ signal }) =>
      allItems(page => {
        const query = { ...page, agent_id: agent };
        return unwrap(api.GET('/allocations', { signal, params: { query } }));
      })
  });
