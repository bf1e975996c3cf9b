import { useEffect, useState } from 'react';
import { visible } from '../i18n/userText';

const UNITS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1]
] as const;

/** Format seconds with a suitable unit, for example "4 min". */
export function formatSeconds(seconds: number, language: string): string {
  const [unit, size] = UNITS.find(([, length]) => seconds >= length) ?? UNITS[3];
  const number = Math.max(0, Math.floor(seconds / size));
  return new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'short' }).format(
    number
  );
}

/** Format seconds like `formatSeconds`; append the next unit if the number is below 10: "1 hr 20 min". */
export function formatDuration(seconds: number, language: string): string {
  const index = UNITS.findIndex(([, length]) => seconds >= length);
  const unit = UNITS[index];
  if (!unit || seconds >= 10 * unit[1] || index === UNITS.length - 1) {
    return formatSeconds(seconds, language);
  }
  const [, length] = unit;
  const rest = seconds % length;
  const next = UNITS[index + 1];
  return next && rest >= next[1]
    ? `${formatSeconds(seconds, language)} ${formatSeconds(rest, language)}`
    : formatSeconds(seconds, language);
}

export function formatTime(text: string, language: string): string {
  return new Date(text).toLocaleString(language, { dateStyle: 'medium', timeStyle: 'short' });
}

/** Format a time to the second. */
export function formatExactTime(text: string, language: string): string {
  return new Date(text).toLocaleString(language, { dateStyle: 'medium', timeStyle: 'medium' });
}

/** Format a time to the second, with the weekday and the time zone. */
export function formatFullTime(text: string, language: string): string {
  return new Date(text).toLocaleString(language, { dateStyle: 'full', timeStyle: 'long' });
}

/** Format a time in the near future; omit the date if it is today. */
export const formatSoon = (text: string, language: string, now = new Date()) =>
  new Date(text).toDateString() === now.toDateString()
    ? new Date(text).toLocaleTimeString(language, { timeStyle: 'short' })
    : formatTime(text, language);

const ISO_TIME = /\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)/g;

/** Replace the ISO times in a server message with local times. */
export const withLocalTimes = (message: string, language: string) =>
  visible(message).replaceAll(ISO_TIME, text => formatTime(text, language));

/**
 * Return the current Unix time in milliseconds. The component is rendered again after every
 * `intervalMillis`, or never if this is null.
 */
export function useNow(intervalMillis: number | null = 1_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (intervalMillis === null) {
      return undefined;
    }
    const timer = window.setInterval(() => setNow(Date.now()), intervalMillis);
    return () => window.clearInterval(timer);
  }, [intervalMillis]);
  return now;
}
