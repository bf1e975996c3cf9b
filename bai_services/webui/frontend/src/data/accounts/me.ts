import { queryOptions, useQuery } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

export type Me = Schemas['OwnAccount'];

export const meQuery = queryOptions({
  queryKey: ['me'],
  queryFn: ({ signal }) => unwrap(api.GET('/me', { signal }))
});

/** Whether a role may only read; its users create no sessions and no folders. */
export const isReadOnly = (role: string | undefined) => role === 'monitor';

/** Whether the user is in no project, so that the user can start no session. */
export function useHasNoProject(): boolean {
  const { data: me } = useQuery(meQuery);
  return me?.projects.length === 0;
}

/** Whether the user may only read; undefined until the user is known. */
export function useIsReadOnly(): boolean | undefined {
  const { data: me } = useQuery(meQuery);
  return me && isReadOnly(me.role);
}
