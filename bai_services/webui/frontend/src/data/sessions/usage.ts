import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../client';
import type { components } from '../schema';

export type UsageHistory = components['schemas']['UsageSeries'];
export type UsageTrend = components['schemas']['UsageTrend'];

/** Selectable periods of a usage history, in seconds. */
export const PERIODS = { '15min': 900, '1h': 3_600, '24h': 86_400, '7d': 604_800 } as const;
export type Period = keyof typeof PERIODS;

const REFRESH_MILLIS = 15_000;
const TREND_REFRESH_MILLIS = 30_000;

/** Usage of a kernel over time; `isLive`: poll for new values. */
export const usageHistoryQuery = (id: string, kernel: string, period: Period, isLive: boolean) =>
  queryOptions({
    queryKey: ['usage', 'history', id, kernel, period],
    refetchInterval: isLive && REFRESH_MILLIS,
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/sessions/{key}/usage-history', {
          signal,
          params: { path: { key: id }, query: { kernel, period: String(PERIODS[period]) } }
        })
      )
  });

/** Usage of sessions in the last 15 minutes, by session id. */
export const usageTrendsQuery = (ids: string[]) =>
  queryOptions({
    queryKey: ['usage', 'trends', ids],
    enabled: ids.length > 0,
    refetchInterval: TREND_REFRESH_MILLIS,
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/usage-trends', {
          signal,
          params: { query: { session: ids } }
        })
      ),
    select: ({ items }): Map<string, UsageTrend> =>
      new Map(items.map(trend => [trend.session_id, trend]))
  });
