import { queryOptions } from '@tanstack/react-query';
import { allItems } from './allItems';
import { api, unwrap, type Schemas } from './client';

export type CurrentMaintenance = Schemas['CurrentMaintenance'];

const REFRESH_MILLIS = 5 * 60_000;
// A maintenance is shown when it starts within this time.
const AHEAD_MILLIS = 3 * 24 * 3_600_000;

/** The active maintenances, and those that start within three days. */
export const maintenancesQuery = queryOptions({
  queryKey: ['maintenances'],
  queryFn: async ({ signal }) => {
    const all = await allItems(page =>
      unwrap(api.GET('/maintenances/current', { signal, params: { query: page } }))
    );
    const latest = Date.now() + AHEAD_MILLIS;
    return all.filter(({ starts_at: start }) => Date.parse(start) < latest);
  },
  staleTime: REFRESH_MILLIS,
  refetchInterval: REFRESH_MILLIS
});

/** The read-only maintenance that is in force at a Unix time in milliseconds. */
export const readOnlyAt = (maintenances: readonly CurrentMaintenance[], now: number) =>
  maintenances.find(
    ({ mode, starts_at: start, ends_at: end }) =>
      mode === 'read-only' && Date.parse(start) <= now && (end === null || now < Date.parse(end))
  );
