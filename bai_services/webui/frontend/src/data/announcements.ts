import { queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from './allItems';
import { api, unwrap, type Schemas } from './client';
import { queries } from './queries';

export type CurrentAnnouncement = Schemas['CurrentAnnouncement'];

const REFRESH_MILLIS = 5 * 60_000;

/** The current announcements for the user that the user has not dismissed. */
export const announcementsQuery = queryOptions({
  queryKey: ['announcements'],
  queryFn: async ({ signal }) => {
    return allItems(page => {
      const params = { query: { is_dismissed: 'false', ...page } };
      return unwrap(api.GET('/announcements/current', { signal, params }));
    });
  },
  staleTime: REFRESH_MILLIS,
  refetchInterval: REFRESH_MILLIS
});

/** Dismiss an announcement; it disappears at once. */
export function useDismissAnnouncement() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.PUT('/announcements/{key}/dismissal', { params: { path: { key } } })),
    onMutate: key =>
      queries.setQueryData(announcementsQuery.queryKey, old => old?.filter(({ id }) => id !== key)),
    onError: () => queries.invalidateQueries({ queryKey: announcementsQuery.queryKey })
  });
}
