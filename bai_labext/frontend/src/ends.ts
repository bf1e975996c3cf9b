/** When a session ends, and when that is told. */

/** A coming end is told of when it is this near, each once. */
const FIRST_SECONDS = 30 * 60;
const STEPS_SECONDS = [FIRST_SECONDS, 10 * 60, 2 * 60];

/** Since when nobody uses a session, and when that ends it; null: it never does. */
export interface Idleness {
  idle_since: string | null;
  idle_ends_at: string | null;
}

/** How long a session still has; null where no limit of time ends it. */
export function secondsLeft(session: { ends_at: string | null }, now = Date.now()): number | null {
  return session.ends_at ? Math.max(0, (Date.parse(session.ends_at) - now) / 1000) : null;
}

/** How long it may still be left unused; null where that never ends it. */
export function idleSecondsLeft(session: Idleness, now = Date.now()): number | null {
  return secondsLeft({ ends_at: session.idle_ends_at }, now);
}

/** The nearest step that has been reached; null before the first. */
export function stepReached(left: number): number | null {
  return nearest(left, STEPS_SECONDS);
}

/** As `stepReached`, and none before half of the time is over that it may be left unused. */
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
