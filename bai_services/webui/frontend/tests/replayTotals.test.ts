import { expect, test } from 'vitest';
import { freedPercent, savedSeconds } from '../src/pages/idleCheckers/replayTotals';

test.each([
  [0, 0, 0],
  [0.02, 10, 0.2],
  [6.66, 10, 67],
  [10, 10, 100]
])('%d of %d device hours are %d%%', (freed, total, percent) => {
  expect(freedPercent({ device_hours_freed: freed, judged_device_hours: total })).toBe(percent);
});

test('a short session is shown with the time that it ran longer', () => {
  const stop = { stopped_at: '2026-01-01T00:00:00Z', ended_at: '2026-01-01T00:00:36Z' };
  expect(savedSeconds(stop)).toBe(36);
  expect(savedSeconds({ ...stop, ended_at: stop.stopped_at })).toBe(0);
});
