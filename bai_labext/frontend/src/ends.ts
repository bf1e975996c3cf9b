/** Remaining time of a session, and when to warn. */

/** Remaining times at which a warning is shown. */
const FIRST_SECONDS = 30 * 60;
const STEPS_SECONDS = [FIRST_SECONDS, 10 * 60, 2 * 60];

/** Since when a session is idle, and when it is stopped for that; null: never. */
export interface Idleness {
  idle_since: string | null;
  idle_ends_at: string | null;
}

/** Seconds until the session reaches its maximum run time; null if it has none. */
export function secondsLeft(session: { ends_at: string | null }, now = Date.now()): number | null {
  return session.ends_at ? Math.max(0, (Date.parse(session.ends_at) - now) / 1000) : null;
}

/** Seconds until the session is stopped for being idle; null if it has no idle timeout. */
export function idleSecondsLeft(session: Idleness, now = Date.now()): number | null {
  return secondsLeft({ ends_at: session.idle_ends_at }, now);
}

/** The lowest warning step that has been reached; null if none. */
export function stepReached(left: number): number | null {
  return nearest(left, STEPS_SECONDS);
}

/** Like `stepReached` for the idle timeout, but null until half of the timeout has passed. */
export function idleStepReached(session: Idleness, now = Date.now()): number | null {
  const left = idleSecondsLeft(session, now);
  const limit = idleSecondsLeft(session, Date.parse(session.idle_since ?? ''));
  if (left === null || limit === null || Number.isNaN(limit)) {
    return null;
  }
  const first = Math.min(limit / 2, FIRST_SECONDS);
  return nearest(left, [first, ...STEPS_SECONDS.filter(step => step < first)]);
}

function nearest(left: number, steps: readonly number[]): number | null {
  return steps.filter(step => left <= step).at(-1) ?? null;
}
