import { queryOptions } from '@tanstack/react-query';
import { config } from '../../config';
import { api, unwrap, type Schemas } from '../client';

export type EndpointUsageReport = Schemas['EndpointUsageReport'];
export type EndpointUsageRow = Schemas['EndpointUsageRow'];
export type EndpointUsageBy = EndpointUsageReport['by'];

/**
 * What a report about the requests of endpoints contains. `since` and `until` are days of UTC; the
 * day `until` is excluded, and without `until` the report ends now. `endpoint` is an id or a name.
 */
export interface EndpointReportRequest {
  since: string;
  until?: string;
  every: 'day' | 'month' | 'period';
  by: EndpointUsageBy;
  endpoint?: string;
  isOwn: boolean;
}

const parametersOf = ({ since, until, every, by, endpoint, isOwn }: EndpointReportRequest) => ({
  since,
  every,
  by,
  ...(until && { until }),
  ...(endpoint && { endpoint }),
  ...(isOwn && { own: 'true' })
});

/** A report about the requests of endpoints, cached for one minute. */
export const endpointReportQuery = (request: EndpointReportRequest) =>
  queryOptions({
    queryKey: ['usage', 'endpoints', request],
    staleTime: 60_000,
    queryFn: ({ signal }) =>
      unwrap(api.GET('/endpoint-usage', { signal, params: { query: parametersOf(request) } }))
  });

/** URL of a report as a CSV file, with at most `limit` groups. */
export function endpointReportCsvUrl(request: EndpointReportRequest, limit: number) {
  const query = new URLSearchParams({
    ...parametersOf(request),
    limit: String(limit),
    format: 'csv'
  });
  return `${config.api}/endpoint-usage?${query.toString()}`;
}
