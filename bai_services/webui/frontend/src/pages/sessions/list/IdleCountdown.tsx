import { useTranslation } from 'react-i18next';
import { formatSeconds, useNow } from '../../../components/time';
import { endKind, endOf, type Session } from '../../../data/sessions/sessions';

const WARNING_SECONDS = 600;

const TEXTS = {
  idle: 'sessions.idle-ends',
  checker: 'sessions.idle-ends',
  lifetime: 'sessions.lifetime-ends',
  preemption: 'sessions.preemption-ends',
  rule: 'sessions.rule-ends'
} as const;

/** The time until a session is stopped, and why: what happens first. */
export function IdleCountdown({ session }: { session: Session }) {
  const end = session.status === 'RUNNING' ? endOf(session) : undefined;
  return end && <Countdown end={end} text={TEXTS[endKind(session)]} />;
}

/** The countdown of a session that is stopped soon, for lists without space for all countdowns. */
export function ComingStop({ session }: { session: Session }) {
  const now = useNow();
  const end = session.status === 'RUNNING' ? endOf(session) : undefined;
  const isSoon = end !== undefined && Date.parse(end) - now < 1000 * WARNING_SECONDS;
  return isSoon && <Countdown end={end} text={TEXTS[endKind(session)]} />;
}

function Countdown({ end, text }: { end: string; text: string }) {
  const { t, i18n } = useTranslation();
  const seconds = Math.max(0, (Date.parse(end) - useNow()) / 1000);
  const time = formatSeconds(seconds, i18n.language);
  return (
    <span className={seconds < WARNING_SECONDS ? 'bai-danger' : 'bai-secondary'}>
      {t(text, { time })}
    </span>
  );
}
