import { useEffect, useState } from 'react';

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

export function formatTime(text: string, language: string): string {
  return new Date(text).toLocaleString(language, { dateStyle: 'medium', timeStyle: 'short' });
}

const ISO_TIME = /\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)/g;

/** Replace the ISO times in a server message with local times. */
export const withLocalTimes = (message: string, language: string) =>
  message.replaceAll(ISO_TIME, text => formatTime(text, language));

/** Return the current time in milliseconds; render the component again every `intervalMillis`. */
export function useNow(intervalMillis = 1_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), intervalMillis);
    return () => window.clearInterval(timer);
  }, [intervalMillis]);
  return now;
}
