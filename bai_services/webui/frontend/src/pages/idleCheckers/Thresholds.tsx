import { useTranslation } from 'react-i18next';
import { Words } from '../../components/entities/Words';
import type { Item } from '../../data/entities';
import { thresholdValue } from './thresholdValue';

/** The thresholds of an idle checker, each with its unit. */
export function Thresholds({ item }: { item: Item }) {
  const { t, i18n } = useTranslation();
  const thresholds = Object.entries((item['thresholds'] ?? {}) as Record<string, number>);
  const words = thresholds.map(([metric, limit]) =>
    t('idle-checkers.threshold', { metric, value: thresholdValue(metric, limit, i18n.language) })
  );
  return <Words words={words} />;
}
