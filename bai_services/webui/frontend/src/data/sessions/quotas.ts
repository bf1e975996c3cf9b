import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

/** Percentage of a quota at and above which pages warn. */
export const NEARLY_FULL_PERCENT = 90;

export type Quotas = Schemas['SessionQuotas'];

/**
 * The user's quotas and the group's resources. Without a project, the user's first active project
 * is used; without a group, the default group of that project for interactive sessions.
 */
export const quotasQuery = (target: { project?: string; group?: string } = {}) =>
  queryOptions({
    // The key begins with 'sessions', because a change of a session changes the usage of quotas.
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
