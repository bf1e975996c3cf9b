import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatSeconds, formatTime, useNow } from '../../../components/time';

const WARNING_SECONDS = 600;

interface EndCountdownProps {
  end: string;
  /** The text with the remaining time. */
  text: (time: string) => string;
}

/** The time until a session is stopped, in red if little is left. */
export function EndCountdown({ end, text }: EndCountdownProps) {
  const { t, i18n } = useTranslation();
  const seconds = Math.max(0, (Date.parse(end) - useNow()) / 1000);
  return (
    <Typography.Text
      type={seconds < WARNING_SECONDS ? 'danger' : 'secondary'}
      title={formatTime(end, i18n.language)}
    >
      {seconds === 0 ? t('sessions.stopping-now') : text(formatSeconds(seconds, i18n.language))}
    </Typography.Text>
  );
}
