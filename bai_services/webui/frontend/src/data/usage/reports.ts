import { queryOptions } from '@tanstack/react-query';
import { config } from '../../config';
import { api, unwrap, type Schemas } from '../client';

export type UsageReport = Schemas['UsageReport'];
export type UsageRow = Schemas['UsageRow'];
export type Every = UsageReport['every'];
export type By = UsageReport['by'];

/**
 * What a usage report contains. `since` and `until` are dates in the browser's time zone; the day
 * `until` is excluded, and without `until` the report ends now.
 */
export interface ReportRequest {
  since: string;
  until?: string;
  every: Every;
  by: By;
  slot?: string;
  isOwn: boolean;
}

export const timeZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

const parametersOf = ({ since, until, every, by, slot, isOwn }: ReportRequest) => ({
  since,
  every,
  by,
  time_zone: timeZone(),
  ...(until && { until }),
  ...(slot && { slot }),
  ...(isOwn && { own: 'true' })
});

/** A usage report, cached for one minute. */
export const reportQuery = (request: ReportRequest) =>
  queryOptions({
    queryKey: ['usage', 'report', request],
    staleTime: 60_000,
    queryFn: ({ signal }) =>
      unwrap(api.GET('/usage', { signal, params: { query: parametersOf(request) } }))
  });

/** URL of a report as a CSV file, with at most `limit` groups. */
export function reportCsvUrl(request: ReportRequest, limit: number) {
  const query = new URLSearchParams({
    ...parametersOf(request),
    limit: String(limit),
    format: 'csv'
  });
  return `${config.api}/usage?${query.toString()}`;
}
