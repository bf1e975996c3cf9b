import { useTranslation } from 'react-i18next';
import { formatExactTime, formatFullTime, formatTime } from './time';

/**
 * A time in the user's language and time zone; the tooltip has the seconds and the time zone.
 *
 * @param isExact show the seconds, for example of log entries
 */
export function TimeText({ at, isExact = false }: { at: string; isExact?: boolean }) {
  const { language } = useTranslation().i18n;
  return (
    <time className="bai-time" dateTime={at} title={formatFullTime(at, language)}>
      {(isExact ? formatExactTime : formatTime)(at, language)}
    </time>
  );
}
