import { describe, expect, test } from 'vitest';
import type { UsageRow } from '../src/data/usage/reports';
import {
  pointsOf,
  utilizationByHour,
  waitingByHour,
  withEmptyIntervals
} from '../src/pages/statistics/charts';
import { smallFormat } from '../src/pages/statistics/formats';
import {
  everyOf,
  latestDays,
  maxGroups,
  periodOf,
  readStatisticsSearch
} from '../src/pages/statistics/search';

const row = (values: Partial<UsageRow>): UsageRow => ({
  start: '2026-01-05T08:00:00',
  end: '2026-01-05T09:00:00',
  key: '',
  name: '',
  slot: 'cpu',
  allocated_seconds: 7200,
  waited_seconds: null,
  measured_seconds: 0,
  used_seconds: null,
  wasted_seconds: null,
  energy_joules: null,
  cost: null,
  ...values
});

describe('state of the page', () => {
  test('invalid values are ignored', () => {
    expect(
      readStatisticsSearch({ period: '8d', by: 'colour', since: '2026-02-01', until: '2026-01-01' })
    ).toEqual({});
  });

  test('a chosen period includes the last day', () => {
    const chosen = periodOf({ since: '2026-01-30', until: '2026-02-01' }, new Date());
    expect(chosen).toEqual({ since: '2026-01-30', until: '2026-02-02', days: 3 });
    expect(everyOf(chosen)).toBe('hour');
    expect(latestDays(chosen, 1)).toEqual({ since: '2026-02-01', until: '2026-02-02', days: 1 });
  });

  test('a selectable period includes today', () => {
    const week = periodOf({ period: '7d' }, new Date(2026, 0, 7, 12));
    expect(week).toEqual({ since: '2026-01-01', days: 7 });
    expect(everyOf(week)).toBe('day');
  });
});

test('short times are not rounded to 0 hours', () => {
  const format = smallFormat('en');
  expect([0, 0.0051, 0.123, 1.26, 1234.56].map(format)).toEqual([
    '0',
    '0.0051',
    '0.12',
    '1.3',
    '1,234.6'
  ]);
});

describe('CSV', () => {
  test('the file has as many groups as the manager allows rows', () => {
    const month = periodOf({ period: '30d' }, new Date(2026, 0, 31, 12));
    expect(maxGroups(month, 'day', 4)).toBe(160);
    expect(maxGroups(month, 'period', 4)).toBe(1000);
  });
});

describe('charts', () => {
  test('unmeasured usage is unknown, not zero', () => {
    const [point] = pointsOf([row({}), row({ slot: 'mem' })], 'cpu');
    expect(point).toMatchObject({ allocated: 2, used: null, wasted: null });
    expect(
      utilizationByHour([row({})], 'cpu')
        .flat()
        .every(value => value === null)
    ).toBe(true);
  });

  test('the heat map weights hours by their measured time', () => {
    const utilization = utilizationByHour(
      [
        row({ measured_seconds: 3600, used_seconds: 3600 }),
        row({ start: '2026-01-12T08:00:00', measured_seconds: 10800, used_seconds: 0 })
      ],
      'cpu'
    );
    expect(utilization[0]?.[8]).toBe(25);
  });

  test('waiting sessions are a mean over the days', () => {
    const waiting = waitingByHour([row({ slot: 'sessions', waited_seconds: 7200 })], 4);
    expect(waiting[8]).toBe(0.5);
  });

  test('hours of today that have not happened yet are not counted', () => {
    const waiting = waitingByHour([row({ slot: 'sessions', waited_seconds: 7200 })], 5, 7);
    expect(waiting[8]).toBe(0.5);
  });
});

describe('intervals without usage', () => {
  const point = (start: Date, allocated: number) => ({
    start,
    allocated,
    used: null,
    wasted: null
  });
  const [since, until] = [new Date(2026, 0, 30), new Date(2026, 1, 3)];

  test('the time axis has each day of the period', () => {
    const known = point(new Date(2026, 1, 1), 3);
    expect(withEmptyIntervals([known], 'day', since, until)).toEqual([
      point(since, 0),
      point(new Date(2026, 0, 31), 0),
      known,
      point(new Date(2026, 1, 2), 0)
    ]);
  });

  test('a month begins before the period', () => {
    const known = point(new Date(2026, 1, 1), 3);
    expect(withEmptyIntervals([known], 'month', since, until)).toEqual([
      point(new Date(2026, 0, 1), 0),
      known
    ]);
  });

  test('hours; a report without usage has no points', () => {
    const known = point(new Date(2026, 0, 30, 5), 3);
    const hours = withEmptyIntervals([known], 'hour', since, new Date(2026, 0, 30, 12));
    expect(hours.map(({ allocated }) => allocated)).toEqual([0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0]);
    expect(withEmptyIntervals([], 'day', since, until)).toEqual([]);
  });
});
