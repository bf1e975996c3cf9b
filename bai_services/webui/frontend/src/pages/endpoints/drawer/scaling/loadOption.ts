import type { EChartsCoreOption } from 'echarts/core';
import type { LoadHistory } from '../../../../data/serving/endpoints';

/** If two samples are more than this number of sampling intervals apart, a gap is shown. */
const GAP_INTERVALS = 2.5;

type Names = Record<'load' | 'replicas' | 'ready', string>;
type Dot = [number, number | null];

/** The last known load; null if there is none. */
export const lastLoadOf = ({ points }: LoadHistory) =>
  points.findLast(({ load }) => load !== null)?.load ?? null;

/** The values of one series; a null between two samples is shown as a gap. */
export function seriesOf(
  { points, interval_seconds: seconds }: LoadHistory,
  name: keyof Names
): Dot[] {
  const gap = seconds * GAP_INTERVALS * 1000;
  return points.flatMap((point, index): Dot[] => {
    const at = Date.parse(point.at);
    const next = points[index + 1];
    const dot: Dot = [at, point[name]];
    return next && Date.parse(next.at) - at > gap ? [dot, [at + gap / 2, null]] : [dot];
  });
}

/** The ECharts options: the load on the left axis, the replicas on the right one. */
export function loadOption(history: LoadHistory, names: Names): EChartsCoreOption {
  const replicas = { type: 'line', step: 'end', showSymbol: false, yAxisIndex: 1 };
  return {
    grid: { left: 8, right: 8, top: 32, bottom: 4, containLabel: true },
    legend: { top: 0, left: 0 },
    tooltip: { trigger: 'axis', confine: true },
    xAxis: { type: 'time', splitNumber: 4, axisLabel: { hideOverlap: true } },
    yAxis: [
      { type: 'value', min: 0, splitNumber: 2 },
      { type: 'value', min: 0, minInterval: 1, splitNumber: 2, splitLine: { show: false } }
    ],
    series: [
      {
        name: names.load,
        type: 'line',
        showSymbol: false,
        areaStyle: { opacity: 0.15 },
        data: seriesOf(history, 'load')
      },
      { ...replicas, name: names.replicas, data: seriesOf(history, 'replicas') },
      {
        ...replicas,
        name: names.ready,
        lineStyle: { type: 'dashed' },
        data: seriesOf(history, 'ready')
      }
    ]
  };
}
