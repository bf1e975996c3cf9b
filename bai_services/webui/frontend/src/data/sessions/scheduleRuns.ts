import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

export type ScheduleRun = Schemas['ScheduleRun'];

const REFRESH_MILLIS = 60_000;

/** A page of the last starts of a schedule, the newest first. */
export const scheduleRunsQuery = (
  key: string,
  { limit, offset }: { limit: number; offset: number }
) =>
  queryOptions({
    queryKey: ['entities', '/schedules', key, 'runs', limit, offset],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/schedules/{key}/runs', {
          signal,
          params: { path: { key }, query: { limit, offset } }
        })
      ),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MILLIS
  });
