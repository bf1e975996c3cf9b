import type { Reservation } from '../../data/scheduling/reservations';

type Period = Pick<Reservation, 'state' | 'starts_at' | 'ends_at' | 'used_at'>;

/**
 * The current state: that of an open reservation also depends on the time. `unused`: the period has
 * begun, but no session of a member runs on the machines. `lapsed`: requested, and not decided
 * before the end.
 */
export function currentState({ state, ...period }: Period, now: number): string {
  const hasEnded = now >= Date.parse(period.ends_at);
  if (state === 'requested') {
    return hasEnded ? 'lapsed' : state;
  }
  if (state !== 'approved' || now < Date.parse(period.starts_at)) {
    return state;
  }
  return hasEnded ? 'ended' : period.used_at === null ? 'unused' : 'used';
}
