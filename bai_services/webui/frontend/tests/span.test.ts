import { expect, test } from 'vitest';
import { secondsOf, spanOf, spanText } from '../src/components/span';

test.each([
  ['90', 90, 's'],
  // Stays in minutes: while a user types 600, the second digit must not change the unit to hours.
  ['60m', 60, 'm'],
  ['1h30m', 90, 'm'],
  ['2 Days', 2, 'd'],
  ['1h 30min 5secs', 5405, 's'],
  ['1w', 7, 'd'],
  ['30min30min', 1, 'h']
])('%j is shown as %i %s', (text, count, unit) => {
  expect(spanOf(text)).toEqual({ count, unit });
});

test.each(['', 'soon', '1x', 'h', '1h30', '5 mice', '-1h'])('%j is not a duration', text => {
  expect(spanOf(text)).toBeUndefined();
});

test.each([0, 1, 60, 90, 3600, 5400, 86_399, 90_061, 2_000_000])(
  'the text of %i seconds is parsed to the same number',
  seconds => {
    expect(secondsOf(spanText(seconds))).toBe(seconds);
  }
);

test('seconds are written with units', () => {
  expect([spanText(5400), spanText(90_061)]).toEqual(['1h 30min', '1d 1h 1min 1s']);
  expect(secondsOf('soon')).toBeUndefined();
});
