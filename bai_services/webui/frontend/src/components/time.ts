import { useEffect, useState } from 'react';

const UNITS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1]
] as const;

/** Return seconds in the largest unit that fits, for example "4 min". */
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

/** Return the time in milliseconds; the component is drawn again every `intervalMillis`. */
export function useNow(intervalMillis = 1_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), intervalMillis);
    return () => window.clearInterval(timer);
  }, [intervalMillis]);
  return now;
}
