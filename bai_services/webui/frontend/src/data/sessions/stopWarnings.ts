import { endingCheck, endKind, endOf, type Session } from './sessions';

const MINUTE_MILLIS = 60_000;
const WARNING_MILLIS = 10 * MINUTE_MILLIS;
const LAST_WARNING_MILLIS = 2 * MINUTE_MILLIS;
const BATCH_TIMEOUT = 'batch-timeout';

/** A warning that a session is stopped soon. A closed warning stays closed until the next stage. */
export interface StopWarning {
  session: Session;
  stage: 'soon' | 'last';
  /** Time of the stop, in milliseconds since 1970. */
  endsAt: number;
}

/** The warning that is due for a running session; undefined: none. */
export function stopWarning(session: Session, now: number): StopWarning | undefined {
  const end = endOf(session);
  const endsAt = Date.parse(end ?? '');
  const left = endsAt - now;
  if (session.status !== 'RUNNING' || !(left <= warningMillis(session, endsAt))) {
    return undefined;
  }
  return { session, stage: left <= LAST_WARNING_MILLIS ? 'last' : 'soon', endsAt };
}

/** How long before its stop a session is warned. A session that is in use is not. */
function warningMillis(session: Session, endsAt: number): number {
  const kind = endKind(session);
  if (kind === 'checker') {
    return endingCheck(session)?.status === 'idle' ? WARNING_MILLIS : -Infinity;
  }
  if (kind === 'idle') {
    // At most half of the idle timeout: the end is never further ahead than the timeout.
    return Math.min(WARNING_MILLIS, (endsAt - Date.parse(session.idle_since ?? '')) / 2);
  }
  if (session.end_rule?.coded.code === BATCH_TIMEOUT && kind === 'rule') {
    // Warn late: the user has chosen this limit, and most jobs end before it.
    const limit = 1000 * (session.batch_timeout ?? 0);
    return Math.min(LAST_WARNING_MILLIS, limit / 2);
  }
  return WARNING_MILLIS;
}

/**
 * The keys of a warning. The end that a utilization checker computes varies with its samples, so a
 * warning is known if any of its keys is known.
 */
export const warningKeys = ({ session, stage, endsAt }: StopWarning) =>
  [0, -1, 1].map(
    offset => `${session.id}:stops-${stage}:${String(Math.floor(endsAt / MINUTE_MILLIS) + offset)}`
  );
