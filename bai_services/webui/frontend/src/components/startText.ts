import type { TFunction } from 'i18next';
import { formatSoon } from './time';

interface Estimate {
  starts_at: string | null;
  certainty: string;
}

/** Text for the estimated start of a session, with the certainty of the estimate. */
export function startText(t: TFunction, estimate: Estimate, language: string): string {
  const { starts_at: startsAt, certainty } = estimate;
  if (startsAt === null) {
    return t('why.no-estimate');
  }
  return t(certainty === 'known' ? 'why.estimate' : 'why.estimate-about', {
    time: formatSoon(startsAt, language),
    certainty: t(`certainty.${certainty}`)
  });
}
