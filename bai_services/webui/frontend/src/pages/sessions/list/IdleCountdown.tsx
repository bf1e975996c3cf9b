import { useTranslation } from 'react-i18next';
import { formatSeconds, useNow } from '../../../components/time';
import { endKind, endOf, type Session } from '../../../data/sessions/sessions';

const WARNING_SECONDS = 600;

/**
 * The time until a session is stopped because it is idle or its lifetime ends, whichever is first.
 */
export function IdleCountdown({ session }: { session: Session }) {
  const end = session.status === 'RUNNING' ? endOf(session) : undefined;
  return end && <Countdown end={end} isIdle={endKind(session) !== 'lifetime'} />;
}

function Countdown({ end, isIdle }: { end: string; isIdle: boolean }) {
  const { t, i18n } = useTranslation();
  const seconds = Math.max(0, (Date.parse(end) - useNow()) / 1000);
  const time = formatSeconds(seconds, i18n.language);
  return (
    <span className={seconds < WARNING_SECONDS ? 'bai-danger' : 'bai-secondary'}>
      {t(isIdle ? 'sessions.idle-ends' : 'sessions.lifetime-ends', { time })}
    </span>
  );
}
