import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

export type Quotas = Schemas['SessionQuotas'];

/**
 * The user's quotas and the group's resources. The defaults of project and group are the defaults
 * of a new session.
 */
export const quotasQuery = (target: { project?: string; group?: string } = {}) =>
  queryOptions({
    // Changes of sessions change the usage of quotas.
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
