/** Remaining time until a session is stopped, and the steps at which warnings are shown. */

const FIRST_WARNING_SECONDS = 30 * 60;
/** Remaining times at which a warning is shown. */
const WARNING_STEPS_SECONDS = [FIRST_WARNING_SECONDS, 10 * 60, 2 * 60];

const ENDED_STATUSES = ['TERMINATED', 'CANCELLED', 'ERROR'];

/** Whether the session has ended. A session that is being stopped has not. */
export function isEnded(session: { status: string }): boolean {
  return ENDED_STATUSES.includes(session.status);
}

export interface Idleness {
  idle_since: string | null;
  /** When the session is stopped if it remains idle; null: never. */
  idle_ends_at: string | null;
}

/** Seconds until the session reaches its maximum run time; null if it has none. */
export function secondsLeft(session: { ends_at: string | null }, now = Date.now()): number | null {
  return session.ends_at ? Math.max(0, (Date.parse(session.ends_at) - now) / 1000) : null;
}

/** Seconds until the session is stopped because it is idle; null if it has no idle timeout. */
export function idleSecondsLeft(session: Idleness, now = Date.now()): number | null {
  return secondsLeft({ ends_at: session.idle_ends_at }, now);
}

/**
 * The idle checker that stops the session first, if a warning is due. Lifetimes are left out: use
 * does not postpone them.
 */
export function endingCheck<
  Check extends { type: string; is_dry_run: boolean; ends_at: string | null }
>(checks: readonly Check[] | null | undefined, now = Date.now()): Check | null {
  const ending = (checks ?? [])
    .filter(check => !check.is_dry_run && check.type !== 'session-lifetime')
    .map(check => ({ check, left: secondsLeft(check, now) ?? Infinity }))
    .filter(({ left }) => left <= FIRST_WARNING_SECONDS)
    .sort((one, other) => one.left - other.left);
  return ending[0]?.check ?? null;
}

/** The lowest warning step that the remaining time has reached; null if it has reached none. */
export function stepReached(left: number): number | null {
  return lowestStep(left, WARNING_STEPS_SECONDS);
}

/**
 * The lowest warning step that the time until the idle stop has reached; null if it has reached
 * none. The first step is half of the idle timeout, but at most 30 minutes.
 */
export function idleStepReached(session: Idleness, now = Date.now()): number | null {
  const left = idleSecondsLeft(session, now);
  const limit = idleSecondsLeft(session, Date.parse(session.idle_since ?? ''));
  if (left === null || limit === null || Number.isNaN(limit)) {
    return null;
  }
  const first = Math.min(limit / 2, FIRST_WARNING_SECONDS);
  return lowestStep(left, [first, ...WARNING_STEPS_SECONDS.filter(step => step < first)]);
}

function lowestStep(left: number, steps: readonly number[]): number | null {
  return steps.filter(step => left <= step).at(-1) ?? null;
}
