import type { EChartsCoreOption } from 'echarts/core';
import type { Comparison } from '../../../data/scheduling/replays';

const GRID = { left: 8, right: 16, top: 36, bottom: 4, containLabel: true };
const LEGEND = { top: 0, type: 'scroll' };

/** Median and 95th percentile of the waiting times, one group of bars per report. */
export function waitOption(
  comparison: Comparison,
  names: readonly string[],
  labels: { median: string; p95: string },
  format: (seconds: number) => string
): EChartsCoreOption {
  const valueFormatter = (value: unknown) => (typeof value === 'number' ? format(value) : '–');
  return {
    grid: GRID,
    legend: LEGEND,
    tooltip: { trigger: 'axis', confine: true, valueFormatter },
    yAxis: {
      type: 'category',
      inverse: true,
      data: names,
      axisLabel: { interval: 0, overflow: 'break', width: 100, lineHeight: 14 }
    },
    xAxis: {
      type: 'value',
      min: 0,
      splitNumber: 2,
      axisLabel: { formatter: format, hideOverlap: true }
    },
    series: (['median', 'p95'] as const).map(key => ({
      name: labels[key],
      type: 'bar',
      barMaxWidth: 16,
      data: comparison.reports.map(report => report.wait_seconds[key])
    }))
  };
}

/** Utilization of a resource over the period, one line per report. */
export function utilizationOption(
  comparison: Comparison,
  names: readonly string[],
  resource: string,
  format: (percent: number) => string
): EChartsCoreOption {
  const times = comparison.times.map(time => Date.parse(time));
  return {
    grid: GRID,
    legend: LEGEND,
    tooltip: {
      trigger: 'axis',
      confine: true,
      valueFormatter: (value: unknown) => (typeof value === 'number' ? format(value) : '–')
    },
    xAxis: {
      type: 'time',
      min: firstUse(comparison, resource),
      max: Date.parse(comparison.until),
      splitNumber: 4,
      axisLabel: { hideOverlap: true }
    },
    yAxis: { type: 'value', min: 0, splitNumber: 2, axisLabel: { formatter: format } },
    series: comparison.reports.map((report, index) => {
      const used = report.utilization.find(one => one.resource === resource);
      const percents = used?.percents ?? [];
      return {
        name: names[index],
        type: 'line',
        step: 'end',
        showSymbol: false,
        lineStyle: { type: index === 0 ? 'dashed' : 'solid' },
        // The last value holds until the end of the period.
        data: [...times, Date.parse(comparison.until)].map((time, at) => [
          time,
          percents[Math.min(at, percents.length - 1)] ?? null
        ])
      };
    })
  };
}

/**
 * Start of the time axis: one interval before the first use of a resource, so that the chart omits
 * the empty days before it.
 */
function firstUse({ since, times, reports }: Comparison, resource: string): number {
  const used = reports.flatMap(report =>
    report.utilization.filter(one => one.resource === resource).map(({ percents }) => percents)
  );
  const first = times.findIndex((_, at) => used.some(percents => (percents[at] ?? 0) > 0));
  return Date.parse(times[first - 1] ?? since);
}

/** The resources of a comparison; devices first. */
export function resourcesOf(comparison: Comparison): string[] {
  const names = comparison.reports[0]?.utilization.map(({ resource }) => resource) ?? [];
  return [...names.filter(name => name !== 'cpu'), ...names.filter(name => name === 'cpu')];
}
