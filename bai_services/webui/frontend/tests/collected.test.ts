import { afterEach, expect, test, vi } from 'vitest';
import { collected } from '../src/data/collected';

afterEach(() => vi.useRealTimers());

test('values that are added shortly after one another are passed together, each once', () => {
  vi.useFakeTimers();
  const runs: string[][] = [];
  const add = collected<string>(values => runs.push([...values]), 200);
  add('a');
  vi.advanceTimersByTime(150);
  add('b');
  add('a');
  vi.advanceTimersByTime(199);
  expect(runs).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(runs).toEqual([['a', 'b']]);
  add('b');
  vi.advanceTimersByTime(200);
  expect(runs).toEqual([['a', 'b'], ['b']]);
});
