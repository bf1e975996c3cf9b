import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';

const HOUR_SECONDS = 3600;

/** Returns a function that formats seconds as hours. */
export function useHours(): (seconds: number) => string {
  const { t, i18n } = useTranslation();
  return useMemo(() => {
    const number = new Intl.NumberFormat(i18n.language, { maximumFractionDigits: 1 });
    return seconds => t('statistics.hours', { hours: number.format(seconds / HOUR_SECONDS) });
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
