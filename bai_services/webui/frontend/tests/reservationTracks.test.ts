import { expect, test } from 'vitest';
import { tracksOf } from '../src/pages/reservations/tracks';

const period = (from: number, to: number) => ({
  starts_at: `2026-01-02T${String(from).padStart(2, '0')}:00:00+00:00`,
  ends_at: `2026-01-02T${String(to).padStart(2, '0')}:00:00+00:00`
});

test('overlapping reservations have different tracks, others share them', () => {
  const periods = [period(8, 12), period(1, 9), period(9, 10), period(12, 14)];
  const [tracks, count] = tracksOf(periods);
  expect(periods.map(each => tracks.get(each))).toEqual([1, 0, 0, 0]);
  expect(count).toBe(2);
  expect(tracksOf([])[1]).toBe(0);
});
