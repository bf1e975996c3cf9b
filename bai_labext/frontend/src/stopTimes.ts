/** Remaining time until a session is stopped, and the steps at which warnings are shown. */

import type { CodedText, EndRule, IdleCheck, Session } from './types';

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

/** The idle checker that stops the session first, if one of its warnings is due. */
export function endingCheck<
  Check extends Pick<IdleCheck, 'is_dry_run' | 'ends_at' | 'warning_seconds'>
>(checks: readonly Check[] | null | undefined): Check | null {
  const end = (check: Check): number => Date.parse(check.ends_at ?? '');
  const ending = (checks ?? [])
    .filter(check => !check.is_dry_run && check.ends_at && check.warning_seconds !== null)
    .sort((one, other) => end(one) - end(other));
  return ending[0] ?? null;
}

type PlannedEnds = Partial<
  Pick<Session, 'ends_at' | 'idle_ends_at' | 'idle_checks' | 'end_rule' | 'preemption'>
>;

/**
 * The rule that ends the session first and has no warning of its own: a schedule, a spent budget or
 * the time limit of a batch session.
 */
export function endingRule(session: PlannedEnds | null): EndRule | null {
  const rule = session?.end_rule;
  if (!session || !rule) {
    return null;
  }
  const others = [
    session.ends_at,
    session.idle_ends_at,
    session.preemption?.stops_at,
    ...(session.idle_checks ?? []).map(check => check.ends_at)
  ];
  return others.includes(rule.ends_at) ? null : rule;
}

/** The warning step that the end of `endingRule` has reached; null if it has reached none. */
export function ruleStepReached(session: PlannedEnds | null, now = Date.now()): number | null {
  const left = secondsLeft({ ends_at: endingRule(session)?.ends_at ?? null }, now);
  return left === null ? null : stepReached(left);
}

/**
 * Why the session ended, as far as its last state tells: the announced stop of an idle checker, or
 * a rule that is due. Null: unknown.
 */
export function lastReason(
  session: PlannedEnds | null,
  now = Date.now()
): { reason: string; coded: CodedText | null } | null {
  const rule = endingRule(session);
  return (
    endingCheck(session?.idle_checks) ?? (rule && Date.parse(rule.ends_at) <= now ? rule : null)
  );
}

/** The notices of a session, without those that repeat the rule of the check `endingCheck`. */
export function otherNotices(session: {
  notices: readonly string[];
  idle_checks?: readonly IdleCheck[] | null;
}): string[] {
  const reason = endingCheck(session.idle_checks)?.reason ?? '';
  return session.notices.filter(notice => reason === '' || !notice.startsWith(reason));
}

/** How often a user can still postpone the stop that an idle checker has announced. */
export function keepAlivesOf(check: Pick<IdleCheck, 'type' | 'keep_alives_left'>): number {
  return check.type === 'session-lifetime' ? 0 : check.keep_alives_left;
}

/** Whether an announced stop is due: a session that does not respond has probably been stopped. */
export function isStopDue(session: PlannedEnds | null, now = Date.now()): boolean {
  const ends = [
    session?.ends_at,
    session?.idle_ends_at,
    session?.end_rule?.ends_at,
    endingCheck(session?.idle_checks)?.ends_at
  ];
  return ends.some(end => end && Date.parse(end) <= now);
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

/** What happens to the session after a planned stop. */
export type AfterStop = 'requeue' | 'suspend' | 'end';

/**
 * Whether a preemption was dropped: the session had it before, and now continues without it. Not at
 * the planned end, because the session is stopped then.
 */
export function isDropped(
  plan: { endsAt: number; wasSeen: boolean },
  session: { status: string; preemption?: unknown },
  now = Date.now()
): boolean {
  return plan.wasSeen && !session.preemption && session.status === 'RUNNING' && now < plan.endsAt;
}

/**
 * What happens after a stop with this purpose. The purpose of a preemption is `stop`; its mode is
 * part of the session.
 */
export function afterStop(
  purpose: string,
  session: { preemption?: { mode: string } | null } | null
): AfterStop {
  if (purpose === 'suspend' || purpose === 'requeue') {
    return purpose;
  }
  return session?.preemption?.mode === 'reschedule' ? 'requeue' : 'end';
}

/** The key of the countdown of a stop with this purpose. */
export function countdownKey(
  purpose: string,
  session: { preemption?: { mode: string } | null } | null
): string {
  if (purpose === 'suspend') {
    return 'suspends-in';
  }
  if (purpose === 'requeue') {
    return 'requeues-in';
  }
  return afterStop(purpose, session) === 'requeue' ? 'preempted-restarts-in' : 'preempted-in';
}
