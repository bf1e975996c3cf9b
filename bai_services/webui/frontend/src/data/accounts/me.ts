import { queryOptions, useMutation, useQuery } from '@tanstack/react-query';
import { config } from '../../config';
import { api, unwrap, type Schemas } from '../client';
import { OTHER_USER, reportSignOut } from '../connection';
import { queries } from '../queries';

export type Me = Schemas['OwnAccount'];

export const meQuery = queryOptions({
  queryKey: ['me'],
  queryFn: async ({ signal }) => {
    const me = await unwrap(api.GET('/me', { signal }));
    requirePageUser(me);
    return me;
  }
});

/** Start anew if another user has signed in: a page shows data and input of one user only. */
export function requirePageUser({ username }: Pick<Me, 'username'>): void {
  if (username !== config.username) {
    reportSignOut(OTHER_USER);
  }
}

/** Whether a role may only read; its users create no sessions and no folders. */
export const isReadOnly = (role: string | undefined) => role === 'monitor';

/** Whether the user cannot start sessions, because the user is in no project. */
export function useHasNoProject(): boolean {
  const { data: me } = useQuery(meQuery);
  return me?.projects.length === 0;
}

/** Whether the user may only read; undefined until the user is known. */
export function useIsReadOnly(): boolean | undefined {
  const { data: me } = useQuery(meQuery);
  return me && isReadOnly(me.role);
}

/** Change the user's own full name; other fields of the account stay as they are. */
export function useChangeFullName(userId: string) {
  return useMutation({
    mutationFn: (name: string) => {
      const body = { full_name: name } as Schemas['UserChange'];
      return unwrap(api.PATCH('/users/{key}', { params: { path: { key: userId } }, body }));
    },
    onSuccess: () => queries.invalidateQueries({ queryKey: meQuery.queryKey })
  });
}
