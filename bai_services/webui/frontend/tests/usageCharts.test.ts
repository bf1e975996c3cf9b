import { expect, test } from 'vitest';
import { linesOf } from '../src/components/chart/Sparkline';
import type { UsageHistory } from '../src/data/sessions/usage';
import { chartsOf, lastOf, optionOf, summaryOf } from '../src/pages/sessions/drawer/usageCharts';

const HISTORY: UsageHistory = {
  session_id: 's',
  kernel: 'main1',
  start: '2026-11-24T00:00:00Z',
  end: '2026-11-24T00:00:45Z',
  interval_seconds: 15,
  cpu_limit_cores: 2,
  mem_limit_bytes: null,
  metrics: {
    cpu_cores: [0.5, null, 1],
    mem_bytes: [null, null, null],
    net_rx_bytes_per_second: [1, 2, 3],
    net_tx_bytes_per_second: []
  },
  devices: [
    { id: 'g0', model: 'H200', limit_bytes: 8, utilization_percent: [], memory_bytes: [1, 2, 3] },
    { id: 'g1', model: '', limit_bytes: 16, utilization_percent: [], memory_bytes: [4, 5, 6] }
  ]
};

test('charts and series without values are omitted', () => {
  const charts = chartsOf(HISTORY);
  expect(charts.map(({ key, limit }) => [key, limit])).toEqual([
    ['cpu', 2],
    ['device-memory', 16],
    ['network', undefined]
  ]);
  expect(charts[1]?.series.map(({ name }) => name)).toEqual(['H200 g0', 'g1']);
  expect(charts[2]?.series.map(({ name }) => name)).toEqual(['received']);
});

test('points lie at the start of their interval, and gaps stay gaps', () => {
  const [option] = chartsOf(HISTORY).map(
    chart =>
      optionOf(chart, HISTORY, String) as {
        series: { data: [number, number | null][] }[];
        yAxis: { max: number };
      }
  );
  const start = Date.parse(HISTORY.start);
  expect(option?.series[0]?.data).toEqual([
    [start, 0.5],
    [start + 15_000, null],
    [start + 30_000, 1]
  ]);
  expect(option?.yAxis.max).toBe(2);
});

test('summary and last value ignore gaps', () => {
  expect(summaryOf([1, null, 2])).toEqual({ mean: 1.5, highest: 2 });
  expect(summaryOf([null])).toBeNull();
  expect(lastOf([1, 2, null])).toBe(2);
  expect(lastOf([])).toBeNull();
});

test('a sparkline is interrupted by gaps and stays within its height', () => {
  expect(linesOf([0, null, 250])).toEqual(['0.0,15.0', '60.0,1.0']);
  expect(linesOf([])).toEqual([]);
});
