import { expect, test } from 'vitest';
import { appended, MAX_LINES, type Log } from '../src/data/sessions/logLines';

const EMPTY: Log = { lines: [], dropped: 0, hasGap: false, state: 'loading' };

test('a chunk continues the last line, and a gap is marked', () => {
  const log = appended(appended(EMPTY, 'one\ntw', false), 'o\nthree', true);
  expect(log.lines).toEqual(['one', 'two', 'three']);
  expect(log.hasGap).toBe(true);
});

test('the oldest lines are dropped and counted', () => {
  const log = appended(appended(EMPTY, 'line\n'.repeat(MAX_LINES), false), 'last', false);
  expect(log.lines).toHaveLength(MAX_LINES);
  expect(log.lines.at(-1)).toBe('last');
  expect(log.dropped).toBe(1);
});
