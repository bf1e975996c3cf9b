import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from './client';

export type Quotas = Schemas['SessionQuotas'];

/** The caller's quotas and the group's resources; without names, those of a new session. */
export const quotasQuery = (target: { project?: string; group?: string } = {}) =>
  queryOptions({
    // Quotas change with the sessions.
    queryKey: ['sessions', 'quotas', target],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/sessions/quotas', {
          signal,
          params: {
            query: {
              ...(target.project ? { project: target.project } : {}),
              ...(target.group ? { resource_group: target.group } : {})
            }
          }
        })
      ),
    placeholderData: keepPreviousData
  });
