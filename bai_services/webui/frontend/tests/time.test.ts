import { expect, test } from 'vitest';
import { formatSeconds } from '../src/components/time';

test.each([
  [0, '0 sec'],
  [59.9, '59 sec'],
  [240, '4 min'],
  [7_200, '2 hr'],
  [200_000, '2 days'],
  [-5, '0 sec']
])('%d seconds are shown as %s', (seconds, expected) => {
  expect(formatSeconds(seconds, 'en')).toBe(expected);
});
