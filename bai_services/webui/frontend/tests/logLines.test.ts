import { expect, test } from 'vitest';
import { appended, MAX_LINES, type Log } from '../src/data/sessions/logLines';

const EMPTY: Log = { lines: [], dropped: 0, hasGap: false, state: 'loading' };

test('a chunk continues the last line', () => {
  const log = appended(appended(EMPTY, 'one\ntw', false), 'o\nthree', false);
  expect(log.lines).toEqual(['one', 'two', 'three']);
  expect(log.hasGap).toBe(false);
});

test.each([
  ['one\ntw', ['one', 'tw', 'en\t', 'last']],
  ['one\n', ['one', 'en\t', 'last']],
  ['', ['en\t', 'last']]
])('after a gap, a new line begins: %j', (before, lines) => {
  const log = appended(appended(EMPTY, before, false), 'en\t\nlast', true);
  expect(log.lines).toEqual(lines);
  expect(log.hasGap).toBe(true);
});

test('the oldest lines are dropped and counted', () => {
  const log = appended(appended(EMPTY, 'line\n'.repeat(MAX_LINES), false), 'last', false);
  expect(log.lines).toHaveLength(MAX_LINES);
  expect(log.lines.at(-1)).toBe('last');
  expect(log.dropped).toBe(1);
});
