import type { EChartsCoreOption } from 'echarts/core';
import type { EndpointReportRequest, EndpointUsageRow } from '../../../data/usage/endpointReports';

type Every = EndpointReportRequest['every'];

const DAY_MILLIS = 86_400_000;
export const COUNTS = ['requests', 'input_tokens', 'output_tokens'] as const;
// Distinguishable in the light and in the dark theme.
const COLORS = ['#5070dd', '#3fa34d', '#e08a1e'];
export type Count = (typeof COUNTS)[number];

/** Requests and tokens in one interval; `start` is a day of UTC. */
export type RequestPoint = { start: string } & Record<Count, number>;

/** The sums of all rows in each interval of the period, also of intervals without requests. */
export function requestPoints(
  rows: readonly EndpointUsageRow[],
  every: Every,
  since: string,
  until: string
): RequestPoint[] {
  const points = new Map<string, RequestPoint>();
  for (const start of startsOf(every, since, until)) {
    points.set(start, { start, requests: 0, input_tokens: 0, output_tokens: 0 });
  }
  for (const row of rows) {
    const point = points.get(row.start.slice(0, 10));
    if (point) {
      COUNTS.forEach(count => (point[count] += row[count]));
    }
  }
  return [...points.values()];
}

/** The first days of the intervals between two days, the last one excluded. */
function startsOf(every: Every, since: string, until: string): string[] {
  const starts: string[] = [];
  for (let at = Date.parse(since); at < Date.parse(until);) {
    starts.push(new Date(at).toISOString().slice(0, 10));
    const date = new Date(at);
    at =
      every === 'month'
        ? Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1)
        : every === 'day'
          ? at + DAY_MILLIS
          : Number.POSITIVE_INFINITY;
  }
  return starts;
}

/** The start of an interval as the label of the time axis. */
export function requestLabel(start: string, every: Every, language: string): string {
  const options: Intl.DateTimeFormatOptions =
    every === 'month' ? { month: 'short', year: 'numeric' } : { day: 'numeric', month: 'short' };
  return new Intl.DateTimeFormat(language, { ...options, timeZone: 'UTC' }).format(new Date(start));
}

/** The requests as bars on the left axis, and the tokens, if any, as lines on the right one. */
export function requestsOption(
  points: readonly RequestPoint[],
  labels: readonly string[],
  names: Record<Count, string>,
  format: (value: number) => string
): EChartsCoreOption {
  const hasTokens = points.some(point => point.input_tokens + point.output_tokens > 0);
  const axis = { type: 'value', min: 0, minInterval: 1, axisLabel: { formatter: format } };
  return {
    grid: { left: 8, right: 12, top: 32, bottom: 4, containLabel: true },
    color: COLORS,
    legend: { top: 0 },
    tooltip: {
      trigger: 'axis',
      confine: true,
      valueFormatter: (value: unknown) => (typeof value === 'number' ? format(value) : '–')
    },
    xAxis: { type: 'category', data: labels, axisLabel: { hideOverlap: true } },
    yAxis: hasTokens ? [axis, { ...axis, splitLine: { show: false } }] : [axis],
    series: COUNTS.filter(count => hasTokens || count === 'requests').map(count => ({
      name: names[count],
      data: points.map(point => point[count]),
      ...(count === 'requests'
        ? { type: 'bar' }
        : { type: 'line', yAxisIndex: 1, showSymbol: points.length === 1 })
    }))
  };
}
