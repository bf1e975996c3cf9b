import { describe, expect, test } from 'vitest';
import type { EndpointUsageRow } from '../src/data/usage/endpointReports';
import {
  requestLabel,
  requestPoints,
  requestsOption
} from '../src/pages/statistics/endpoints/requests';
import { readStatisticsSearch } from '../src/pages/statistics/search';

const row = (start: string, requests: number, tokens = 0): EndpointUsageRow => ({
  start: `${start}T00:00:00+00:00`,
  end: '',
  key: '',
  name: '',
  owner: '',
  requests,
  input_tokens: tokens,
  output_tokens: 0
});
const NAMES = { requests: 'Requests', input_tokens: 'Input', output_tokens: 'Output' };

describe('requests of endpoints over time', () => {
  test('days without requests are points, and rows of a day are added up', () => {
    const rows = [row('2026-01-30', 2, 5), row('2026-02-01', 1), row('2026-02-01', 3)];
    const points = requestPoints(rows, 'day', '2026-01-30', '2026-02-02');
    expect(points.map(({ start, requests }) => [start, requests])).toEqual([
      ['2026-01-30', 2],
      ['2026-01-31', 0],
      ['2026-02-01', 4]
    ]);
    expect(points[0]?.input_tokens).toBe(5);
  });

  test('months begin at the first day, except the first one', () => {
    const points = requestPoints([row('2026-02-01', 7)], 'month', '2026-01-15', '2026-03-02');
    expect(points.map(({ start, requests }) => [start, requests])).toEqual([
      ['2026-01-15', 0],
      ['2026-02-01', 7],
      ['2026-03-01', 0]
    ]);
    expect(requestLabel('2026-02-01', 'month', 'en')).toBe('Feb 2026');
  });

  test('tokens have a second axis only if there are any', () => {
    const option = (tokens: number) =>
      requestsOption(
        requestPoints([row('2026-01-01', 1, tokens)], 'day', '2026-01-01', '2026-01-02'),
        ['1'],
        NAMES,
        String
      );
    expect(option(0)['series']).toHaveLength(1);
    expect(option(0)['yAxis']).toHaveLength(1);
    expect(option(9)['series']).toHaveLength(3);
    expect(option(9)['yAxis']).toHaveLength(2);
  });

  test('the state of the page has the statistics and the group', () => {
    const state = { about: 'endpoints', group: 'token' };
    expect(readStatisticsSearch(state)).toEqual(state);
    expect(readStatisticsSearch({ about: 'all', group: 'image' })).toEqual({});
  });
});
