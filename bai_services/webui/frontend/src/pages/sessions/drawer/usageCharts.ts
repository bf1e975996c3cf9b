import type { EChartsCoreOption } from 'echarts/core';
import type { UsageHistory } from '../../../data/sessions/usage';

type Values = readonly (number | null)[];
export type Unit = 'cores' | 'bytes' | 'percent' | 'rate';

export interface UsageChart {
  key: 'cpu' | 'memory' | 'device-utilization' | 'device-memory' | 'network' | 'disk';
  unit: Unit;
  /** The upper end of the value axis, for instance the kernel's limit. */
  limit?: number;
  series: { name: string; values: Values }[];
}

/** The charts of a history; charts without values are omitted. */
export function chartsOf(history: UsageHistory): UsageChart[] {
  const of = (metric: string) => history.metrics[metric] ?? [];
  const devices = history.devices.map(device => ({
    name: `${device.model} ${device.id}`.trim(),
    device
  }));
  const charts: UsageChart[] = [
    {
      key: 'cpu',
      unit: 'cores',
      ...(history.cpu_limit_cores !== null && { limit: history.cpu_limit_cores }),
      series: [{ name: 'cpu', values: of('cpu_cores') }]
    },
    {
      key: 'memory',
      unit: 'bytes',
      ...(history.mem_limit_bytes !== null && { limit: history.mem_limit_bytes }),
      series: [{ name: 'memory', values: of('mem_bytes') }]
    },
    {
      key: 'device-utilization',
      unit: 'percent',
      limit: 100,
      series: devices.map(({ name, device }) => ({ name, values: device.utilization_percent }))
    },
    {
      key: 'device-memory',
      unit: 'bytes',
      limit: Math.max(0, ...devices.map(({ device }) => device.limit_bytes ?? 0)),
      series: devices.map(({ name, device }) => ({ name, values: device.memory_bytes }))
    },
    {
      key: 'network',
      unit: 'rate',
      series: [
        { name: 'received', values: of('net_rx_bytes_per_second') },
        { name: 'sent', values: of('net_tx_bytes_per_second') }
      ]
    },
    {
      key: 'disk',
      unit: 'rate',
      series: [
        { name: 'read', values: of('io_read_bytes_per_second') },
        { name: 'written', values: of('io_write_bytes_per_second') }
      ]
    }
  ];
  return charts
    .map(chart => ({
      ...chart,
      series: chart.series.filter(one => one.values.some(value => value !== null))
    }))
    .filter(chart => chart.series.length > 0);
}

/** The newest measured value, or null. */
export const lastOf = (values: Values) => values.findLast(value => value !== null) ?? null;

/** Mean and maximum of the measured values; null without values. */
export function summaryOf(values: Values): { mean: number; highest: number } | null {
  const measured = values.filter(value => value !== null);
  if (measured.length === 0) {
    return null;
  }
  return {
    mean: measured.reduce((sum, value) => sum + value, 0) / measured.length,
    highest: Math.max(...measured)
  };
}

/** The ECharts options of a chart whose time axis spans the history. */
export function optionOf(
  chart: UsageChart,
  history: UsageHistory,
  format: (value: number) => string
): EChartsCoreOption {
  const start = Date.parse(history.start);
  const stepMillis = history.interval_seconds * 1000;
  return {
    grid: { left: 8, right: 12, top: 8, bottom: 4, containLabel: true },
    tooltip: {
      trigger: 'axis',
      confine: true,
      valueFormatter: (value: unknown) => (typeof value === 'number' ? format(value) : '–')
    },
    xAxis: {
      type: 'time',
      min: start,
      max: Date.parse(history.end),
      splitNumber: 4,
      axisLabel: { hideOverlap: true }
    },
    yAxis: {
      type: 'value',
      min: 0,
      ...(chart.limit && { max: chart.limit, interval: chart.limit / 2 }),
      splitNumber: 2,
      axisLabel: { formatter: format }
    },
    series: chart.series.map(({ name, values }) => ({
      name,
      type: 'line',
      showSymbol: false,
      areaStyle: { opacity: 0.15 },
      data: values.map((value, index) => [start + index * stepMillis, value])
    }))
  };
}
