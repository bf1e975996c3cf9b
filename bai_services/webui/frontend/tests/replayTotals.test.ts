import { expect, test } from 'vitest';
import { freedPercent, savedSeconds, totalsOf } from '../src/pages/idleCheckers/replayTotals';

const CORES = { hours: 'core_hours', freed: 3, judged: 12 };

test.each([
  [0, 0, 0],
  [0.02, 10, 0.2],
  [6.66, 10, 67],
  [10, 10, 100]
])('%d of %d hours are %d%%', (freed, judged, percent) => {
  expect(freedPercent({ freed, judged })).toBe(percent);
});

test.each([
  [8, [{ hours: 'device_hours', freed: 2, judged: 8 }, CORES]],
  [0, [CORES]]
])('of sessions with %d device hours, the totals are %o', (devices, totals) => {
  const result = {
    judged_device_hours: devices,
    device_hours_freed: devices / 4,
    judged_core_hours: 12,
    core_hours_freed: 3
  };
  expect(totalsOf(result)).toMatchObject(totals);
});

test('a short session is shown with the time that it ran longer', () => {
  const stop = { stopped_at: '2026-01-01T00:00:00Z', ended_at: '2026-01-01T00:00:36Z' };
  expect(savedSeconds(stop)).toBe(36);
  expect(savedSeconds({ ...stop, ended_at: stop.stopped_at })).toBe(0);
});
