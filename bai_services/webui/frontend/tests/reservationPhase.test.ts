import { expect, test } from 'vitest';
import { currentState } from '../src/pages/reservations/phase';

const at = (hour: number) => Date.parse(`2026-01-02T${String(hour).padStart(2, '0')}:00:00Z`);
const reservation = (state: string, used_at: string | null = null) => ({
  state,
  used_at,
  starts_at: '2026-01-02T08:00:00+00:00',
  ends_at: '2026-01-02T10:00:00+00:00'
});

test('the state of an approved reservation depends on the time and on its use', () => {
  const states = [7, 8, 9, 10].map(hour => currentState(reservation('approved'), at(hour)));
  expect(states).toEqual(['approved', 'unused', 'unused', 'ended']);
  const used = reservation('approved', '2026-01-02T08:05:00+00:00');
  expect([9, 11].map(hour => currentState(used, at(hour)))).toEqual(['used', 'ended']);
});

test('other states remain; a request that was not decided lapses', () => {
  expect([7, 9, 10].map(hour => currentState(reservation('requested'), at(hour)))).toEqual([
    'requested',
    'requested',
    'lapsed'
  ]);
  expect(currentState(reservation('expired'), at(11))).toBe('expired');
});
