import { queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from './allItems';
import { api, unwrap, type Schemas } from './client';
import { queries } from './queries';

export type Setting = Schemas['SettingState'];

/** The settings of the manager. */
export const settingsQuery = queryOptions({
  queryKey: ['configuration'],
  queryFn: ({ signal }) =>
    allItems(page => unwrap(api.GET('/configuration', { signal, params: { query: page } })))
});

/** Set a setting in the database; null removes it from the database. */
export function useChangeSetting() {
  return useMutation({
    mutationFn: async ({ name, value }: { name: string; value: string | null }) => {
      const params = { path: { key: name } };
      if (value === null) {
        await unwrap(api.DELETE('/configuration/{key}', { params }));
      } else {
        await unwrap(api.PUT('/configuration/{key}', { params, body: { value } }));
      }
    },
    onSettled: () => queries.invalidateQueries({ queryKey: settingsQuery.queryKey })
  });
}
