import { useTranslation } from 'react-i18next';
import { formatSeconds, useNow } from '../../../components/time';
import { endText } from '../../../data/sessions/endTexts';
import { endOf, type Session } from '../../../data/sessions/sessions';

const WARNING_SECONDS = 600;

/** The time until a session is stopped, and why: what happens first. */
export function IdleCountdown({ session }: { session: Session }) {
  const end = session.status === 'RUNNING' ? endOf(session) : undefined;
  return end && <Countdown end={end} text={endText(session)} />;
}

/** The countdown of a session that is stopped soon, for lists without space for all countdowns. */
export function ComingStop({ session }: { session: Session }) {
  const now = useNow();
  const end = session.status === 'RUNNING' ? endOf(session) : undefined;
  const isSoon = end !== undefined && Date.parse(end) - now < 1000 * WARNING_SECONDS;
  return isSoon && <Countdown end={end} text={endText(session)} />;
}

function Countdown({ end, text }: { end: string; text: ReturnType<typeof endText> }) {
  const { t, i18n } = useTranslation();
  const seconds = Math.max(0, (Date.parse(end) - useNow()) / 1000);
  const time = formatSeconds(seconds, i18n.language);
  return (
    <span className={seconds < WARNING_SECONDS ? 'bai-danger' : 'bai-secondary'}>
      {seconds === 0 ? t('sessions.stopping-now') : t(text, { time })}
    </span>
  );
}
