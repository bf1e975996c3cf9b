import type { EChartsCoreOption } from 'echarts/core';
import type { Every, UsageRow } from '../../data/usage/reports';

const HOUR_SECONDS = 3600;
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
// Values of `Date.getDay`, Monday first.
const WEEKDAYS = [1, 2, 3, 4, 5, 6, 0];

/**
 * Usage of a slot in one interval, as cores, GiB, devices or sessions times hours; null: not
 * measured.
 */
export interface Point {
  start: Date;
  allocated: number;
  used: number | null;
  wasted: number | null;
}

const hours = (seconds: number | null) => (seconds === null ? null : seconds / HOUR_SECONDS);

export const pointsOf = (rows: readonly UsageRow[], slot: string): Point[] =>
  rows
    .filter(row => row.slot === slot)
    .map(row => ({
      start: new Date(row.start),
      allocated: row.allocated_seconds / HOUR_SECONDS,
      used: hours(row.used_seconds),
      wasted: hours(row.wasted_seconds)
    }));

/**
 * The points, with an empty point for each interval of the period that has no usage. `until` is the
 * end of the period. Without usage, the result is empty.
 */
export function withEmptyIntervals(
  points: readonly Point[],
  every: Every,
  since: Date,
  until: Date
): Point[] {
  if (points.length === 0 || every === 'period') {
    return [...points];
  }
  const known = new Map(points.map(point => [point.start.getTime(), point]));
  for (const start of startsOf(every, since, until)) {
    const at = start.getTime();
    known.set(at, known.get(at) ?? { start, allocated: 0, used: null, wasted: null });
  }
  return [...known.values()].sort((one, other) => one.start.getTime() - other.start.getTime());
}

/** The starts of the intervals between two times, in the browser's time zone. */
function startsOf(every: Exclude<Every, 'period'>, since: Date, until: Date): Date[] {
  const year = since.getFullYear();
  const month = since.getMonth();
  const first = new Date(year, month, since.getDate()).getTime();
  const startOf = (index: number) =>
    every === 'hour'
      ? new Date(first + index * HOUR_SECONDS * 1000)
      : every === 'day'
        ? new Date(year, month, since.getDate() + index)
        : new Date(year, month + index, 1);
  const starts: Date[] = [];
  for (let start = startOf(0); start < until; start = startOf(starts.length)) {
    starts.push(start);
  }
  return starts;
}

/** Mean utilization in percent by weekday (0 is Monday) and hour; null: not measured. */
export function utilizationByHour(rows: readonly UsageRow[], slot: string): (number | null)[][] {
  const used = WEEKDAYS.map(() => HOURS.map(() => 0));
  const measured = WEEKDAYS.map(() => HOURS.map(() => 0));
  for (const row of rows) {
    const at = new Date(row.start);
    const day = WEEKDAYS.indexOf(at.getDay());
    const hour = at.getHours();
    const [usedOfDay, measuredOfDay] = [used[day], measured[day]];
    if (row.slot === slot && usedOfDay && measuredOfDay) {
      usedOfDay[hour] = (usedOfDay[hour] ?? 0) + (row.used_seconds ?? 0);
      measuredOfDay[hour] = (measuredOfDay[hour] ?? 0) + row.measured_seconds;
    }
  }
  return used.map((ofDay, day) =>
    ofDay.map((seconds, hour) => {
      const total = measured[day]?.[hour] ?? 0;
      return total > 0 ? Math.round((100 * seconds) / total) : null;
    })
  );
}

/**
 * Mean number of waiting sessions by hour of the day, in a period of `days` days. `lastHour` is the
 * hour in which the last day ends: its later hours have not happened yet.
 */
export function waitingByHour(rows: readonly UsageRow[], days: number, lastHour = 23): number[] {
  const waited = HOURS.map(() => 0);
  for (const row of rows) {
    const hour = new Date(row.start).getHours();
    waited[hour] = (waited[hour] ?? 0) + (row.waited_seconds ?? 0);
  }
  return waited.map(
    (seconds, hour) => seconds / HOUR_SECONDS / Math.max(1, hour > lastHour ? days - 1 : days)
  );
}

/** The start of an interval as the label of the time axis. */
export function startLabel(start: Date, every: Every, language: string): string {
  const options: Record<Every, Intl.DateTimeFormatOptions> = {
    hour: { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' },
    day: { day: 'numeric', month: 'short' },
    month: { month: 'short', year: 'numeric' },
    period: { day: 'numeric', month: 'short' }
  };
  return new Intl.DateTimeFormat(language, options[every]).format(start);
}

const GRID = { left: 8, right: 12, top: 32, bottom: 4, containLabel: true };

/** Bars of allocated, used and wasted hours in each interval. */
export function overTimeOption(
  points: readonly Point[],
  labels: readonly string[],
  names: { allocated: string; used: string; wasted: string },
  format: (value: number) => string
): EChartsCoreOption {
  return {
    grid: GRID,
    legend: { top: 0 },
    tooltip: {
      trigger: 'axis',
      confine: true,
      valueFormatter: (value: unknown) => (typeof value === 'number' ? format(value) : '–')
    },
    xAxis: { type: 'category', data: labels, axisLabel: { hideOverlap: true } },
    yAxis: { type: 'value', min: 0, axisLabel: { formatter: format } },
    series: (['allocated', 'used', 'wasted'] as const).map(key => ({
      name: names[key],
      type: 'bar',
      data: points.map(point => point[key])
    }))
  };
}

/** A heat map of the utilization by weekday and hour. */
export function heatMapOption(
  utilization: readonly (readonly (number | null)[])[],
  weekdays: readonly string[],
  format: (percent: number) => string
): EChartsCoreOption {
  const cells = utilization.flatMap((ofDay, day) =>
    ofDay.flatMap((percent, hour) => (percent === null ? [] : [[hour, day, percent]]))
  );
  return {
    grid: { ...GRID, top: 8, bottom: 40 },
    tooltip: {
      confine: true,
      formatter: ({ value }: { value: [number, number, number] }) =>
        `${weekdays[value[1]] ?? ''} ${value[0]}:00 · ${format(value[2])}`
    },
    xAxis: { type: 'category', data: HOURS, axisLabel: { hideOverlap: true } },
    yAxis: { type: 'category', data: weekdays, inverse: true },
    visualMap: {
      min: 0,
      max: 100,
      orient: 'horizontal',
      left: 'center',
      bottom: 0,
      itemHeight: 100,
      text: [format(100), format(0)],
      formatter: (value: number) => format(Math.round(value)),
      inRange: { color: ['#dceefb', '#5aa7e0', '#0b4f8a'] }
    },
    series: [{ type: 'heatmap', data: cells }]
  };
}

/** Bars of the waiting sessions in each hour of the day. */
export function waitingOption(
  waiting: readonly number[],
  name: string,
  format: (value: number) => string
): EChartsCoreOption {
  return {
    grid: { ...GRID, top: 8 },
    tooltip: {
      trigger: 'axis',
      confine: true,
      valueFormatter: (value: unknown) => (typeof value === 'number' ? format(value) : '–')
    },
    xAxis: { type: 'category', data: HOURS, axisLabel: { hideOverlap: true } },
    yAxis: { type: 'value', min: 0, axisLabel: { formatter: format } },
    series: [{ name, type: 'bar', data: waiting }]
  };
}

/** The names of the weekdays, Monday first. */
export function weekdayNames(language: string): string[] {
  const format = new Intl.DateTimeFormat(language, { weekday: 'short', timeZone: 'UTC' });
  // 5 January 1970 was a Monday.
  return WEEKDAYS.map((_, day) => format.format(new Date(Date.UTC(1970, 0, 5 + day))));
}
