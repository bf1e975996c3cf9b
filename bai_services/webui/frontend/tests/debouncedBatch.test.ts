import { afterEach, expect, test, vi } from 'vitest';
import { debouncedBatch } from '../src/data/debouncedBatch';

afterEach(() => vi.useRealTimers());

test('values are debounced and passed to the callback in one batch without duplicates', () => {
  vi.useFakeTimers();
  const runs: string[][] = [];
  const add = debouncedBatch<string>(values => runs.push([...values]), 200);
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
