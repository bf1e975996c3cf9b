import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../data/accounts/me';
import { maintenancesQuery, readOnlyAt } from '../data/maintenances';
import { formatSoon, useNow } from './time';

const CLOCK_MILLIS = 15_000;

/**
 * Why the user cannot start a session now: the installation is read-only; undefined if it is not.
 * Superadmins can change data during a maintenance.
 */
export function useReadOnlyReason(): string | undefined {
  const { t, i18n } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { data: maintenances = [] } = useQuery(maintenancesQuery);
  const period = readOnlyAt(maintenances, useNow(CLOCK_MILLIS));
  if (!period || me?.role === 'superadmin') {
    return undefined;
  }
  return period.ends_at === null
    ? t('maintenances.no-starts-open')
    : t('maintenances.no-starts', { end: formatSoon(period.ends_at, i18n.language) });
}
