/** When a session ends, and when to warn. */

/** Warnings are shown when the remaining time falls below each of these. */
const FIRST_SECONDS = 30 * 60;
const STEPS_SECONDS = [FIRST_SECONDS, 10 * 60, 2 * 60];

/** Since when a session is unused, and when that ends it; null: never. */
export interface Idleness {
  idle_since: string | null;
  idle_ends_at: string | null;
}

/** Remaining time of a session; null without a time limit. */
export function secondsLeft(session: { ends_at: string | null }, now = Date.now()): number | null {
  return session.ends_at ? Math.max(0, (Date.parse(session.ends_at) - now) / 1000) : null;
}

/** Remaining time if unused; null without an idle limit. */
export function idleSecondsLeft(session: Idleness, now = Date.now()): number | null {
  return secondsLeft({ ends_at: session.idle_ends_at }, now);
}

/** The last warning step reached; null before the first. */
export function stepReached(left: number): number | null {
  return nearest(left, STEPS_SECONDS);
}

/** As `stepReached`, but none before half of the idle limit has passed. */
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
