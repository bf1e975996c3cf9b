import { endKind, type Session } from './sessions';

const TEXTS = {
  idle: 'sessions.idle-ends',
  checker: 'sessions.idle-ends',
  lifetime: 'sessions.lifetime-ends',
  preemption: 'sessions.preemption-ends',
  rule: 'sessions.rule-ends'
} as const;

/** The key of the text about the stop of a session, for lists. */
export function endText(session: Session) {
  const kind = endKind(session);
  return kind === 'preemption' && session.preemption?.mode === 'reschedule'
    ? 'sessions.preemption-ends-restart'
    : TEXTS[kind];
}

/** The key of the text about what follows the stop of a session; undefined: it ends. */
export const afterStopText = (session: Session) =>
  endKind(session) === 'preemption' && session.preemption
    ? (`sessions.preemption-${session.preemption.mode}` as const)
    : undefined;
