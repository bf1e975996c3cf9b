import { expect, test } from 'vitest';
import { formatDuration, formatSeconds, formatSoon } from '../src/components/time';

test.each([
  [0, '0 sec'],
  [59.9, '59 sec'],
  [240, '4 min'],
  [7_200, '2 hr'],
  [200_000, '2 days'],
  [-5, '0 sec']
])('formatSeconds shows %d seconds as %s', (seconds, expected) => {
  expect(formatSeconds(seconds, 'en')).toBe(expected);
});

test.each([
  [0, '0 sec'],
  [59.9, '59 sec'],
  [80, '1 min 20 sec'],
  [4_800, '1 hr 20 min'],
  [3_610, '1 hr'],
  [36_610, '10 hr'],
  [90_000, '1 day 1 hr']
])('formatDuration shows %d seconds as %s', (seconds, expected) => {
  expect(formatDuration(seconds, 'en')).toBe(expected);
});

test('formatSoon omits the date of today', () => {
  const now = new Date(2026, 10, 26, 3, 0);
  const at = (day: number) => new Date(2026, 10, day, 15, 14).toISOString();
  expect(formatSoon(at(26), 'en-GB', now)).toBe('15:14');
  expect(formatSoon(at(27), 'en-GB', now)).toBe('27 Nov 2026, 15:14');
});
