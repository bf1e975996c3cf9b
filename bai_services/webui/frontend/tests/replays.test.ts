import { expect, test } from 'vitest';
import type { Comparison, PolicyReport } from '../src/data/scheduling/replays';
import { resourcesOf, utilizationOption, waitOption } from '../src/pages/scheduler/replays/charts';
import { policyOf, policyText, requestOf } from '../src/pages/scheduler/replays/policies';
import { mostChangedUser, ruleTexts } from '../src/pages/scheduler/replays/summary';
import { readSchedulerSearch } from '../src/pages/scheduler/search';

const report = (median: number, percents: (number | null)[]): PolicyReport => ({
  name: 'current',
  scheduler: 'fifo',
  placement: 'priced',
  backfill: 'reserving',
  sessions: 2,
  started: 2,
  preemptions: 0,
  lost_seconds: 0,
  wait_seconds: { mean: median, median, p95: 2 * median, max: 2 * median },
  makespan_seconds: 100,
  fragmentation_percent: 0,
  utilization: [
    { resource: 'cpu', mean_percent: 50, percents },
    { resource: 'cuda', mean_percent: 50, percents }
  ],
  than_history: null,
  than_current: null,
  by_project: [],
  by_user: [],
  by_priority: []
});

const comparison: Comparison = {
  since: '2026-01-02T12:00:00+00:00',
  until: '2026-01-02T12:02:00+00:00',
  sessions: 2,
  running_before: 0,
  agents: 1,
  interval_seconds: 60,
  times: ['2026-01-02T12:00:00+00:00', '2026-01-02T12:01:00+00:00'],
  gaps: [],
  reports: [report(10, [100, null]), report(20, [50, 50])]
};

test('a policy is converted from and to its text in the URL', () => {
  const policy = policyOf('drf.spread.');
  expect(policy).toEqual({ scheduler: 'drf', placement: 'spread', backfill: '' });
  expect(policyText(policy)).toBe('drf.spread.');
  expect(requestOf(policy)).toEqual({ scheduler: 'drf', scheduler_opts: { placement: 'spread' } });
  expect(requestOf(policyOf('nonsense'))).toEqual({ scheduler: null, scheduler_opts: {} });
});

test('invalid state in the URL is ignored', () => {
  expect(
    readSchedulerSearch({ view: 'try', since: '7d', policies: ['fifo..', 3, 'x', 'y'] })
  ).toEqual({ view: 'try', since: '7d', policies: ['fifo..', '..'] });
  expect(readSchedulerSearch({ view: 'other', since: '8d', policies: 'fifo', range: 'x' })).toEqual(
    {}
  );
});

test('charts have one series or bar per report', () => {
  expect(resourcesOf(comparison)).toEqual(['cuda', 'cpu']);
  const text = String;
  const names = ['History', 'Current policy'];
  const waits = waitOption(comparison, names, { median: 'm', p95: 'p' }, text);
  expect(waits['series']).toMatchObject([
    { name: 'm', data: [10, 20] },
    { name: 'p', data: [20, 40] }
  ]);
  const start = Date.parse(comparison.since);
  expect(utilizationOption(comparison, names, 'cuda', text)['series']).toMatchObject([
    {
      name: 'History',
      data: [
        [start, 100],
        [start + 60_000, null],
        [start + 120_000, null]
      ]
    },
    { name: 'Current policy' }
  ]);
});

test('a tried policy is named by the rules that differ from the current policy', () => {
  const current = report(10, []);
  const text = (order: string) => `order ${order}`;
  expect(ruleTexts({ ...current, scheduler: 'lifo' }, current, text)).toEqual(['order lifo']);
  const other = { ...current, placement: 'pack', backfill: 'off' };
  expect(ruleTexts(other, current, text)).toEqual(['pack', 'off']);
  expect(ruleTexts(current, current, text)).toEqual(['order fifo', 'priced', 'reserving']);
});

test('the user whose median wait changes most is named', () => {
  const waits = (name: string, median: number) => ({
    domain: 'default',
    name,
    sessions: 1,
    started: 1,
    wait_seconds: { mean: median, median, p95: median, max: median }
  });
  const current = { ...report(10, []), by_user: [waits('ann', 60), waits('bob', 30)] };
  const tried = { ...report(10, []), by_user: [waits('ann', 50), waits('bob', 90)] };
  expect(mostChangedUser(tried, current)).toEqual({ user: 'bob', before: 30, after: 90 });
  expect(mostChangedUser(current, current)).toBeUndefined();
});

test('the chart of the utilization begins before the first use', () => {
  const unused = { ...comparison, reports: [report(10, [0, 100]), report(20, [null, 50])] };
  const option = utilizationOption(unused, ['a', 'b'], 'cuda', String);
  expect(option['xAxis']).toMatchObject({ min: Date.parse(comparison.since) });
  const times = [...comparison.times, '2026-01-02T12:02:00+00:00'];
  const later = { ...unused, times, reports: [report(10, [0, 0, 100])] };
  expect(utilizationOption(later, ['a'], 'cuda', String)['xAxis']).toMatchObject({
    min: Date.parse('2026-01-02T12:01:00+00:00')
  });
});
