import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatSeconds, useNow } from '../../../components/time';
import type { Session } from '../../../data/sessions/sessions';

const WARNING_SECONDS = 600;

/**
 * The time until a session is stopped because it is idle or its lifetime ends, whichever is first.
 */
export function IdleCountdown({ session }: { session: Session }) {
  const { t, i18n } = useTranslation();
  const now = useNow();
  const ends = [session.idle_ends_at, session.ends_at]
    .filter(time => time !== null)
    .map(time => Date.parse(time));
  if (session.status !== 'RUNNING' || ends.length === 0) {
    return null;
  }
  const seconds = Math.max(0, (Math.min(...ends) - now) / 1000);
  const time = formatSeconds(seconds, i18n.language);
  const isIdle =
    session.idle_ends_at !== null && Date.parse(session.idle_ends_at) === Math.min(...ends);
  return (
    <Typography.Text type={seconds < WARNING_SECONDS ? 'danger' : 'secondary'}>
      {t(isIdle ? 'sessions.idle-ends' : 'sessions.lifetime-ends', { time })}
    </Typography.Text>
  );
}
