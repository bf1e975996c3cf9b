import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';

const HOUR_SECONDS = 3600;

/** Returns a function that formats numbers; a number below 1 has two significant digits. */
export function smallFormat(language: string): (value: number) => string {
  const number = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
  const small = new Intl.NumberFormat(language, { maximumSignificantDigits: 2 });
  return value => (value < 1 ? small : number).format(value);
}

/** Returns a function that formats seconds as hours. */
export function useHours(): (seconds: number) => string {
  const { t, i18n } = useTranslation();
  return useMemo(() => {
    const format = smallFormat(i18n.language);
    return seconds => t('statistics.hours', { hours: format(seconds / HOUR_SECONDS) });
  }, [t, i18n.language]);
}

/** Returns a function that formats a percentage. */
export function usePercent(): (percent: number) => string {
  const { t, i18n } = useTranslation();
  return useMemo(() => {
    const number = new Intl.NumberFormat(i18n.language, { maximumFractionDigits: 0 });
    return percent => t('dashboard.percent', { percent: number.format(percent) });
  }, [t, i18n.language]);
}
