import { useTranslation } from 'react-i18next';
import type { Item } from '../../data/entities';
import { reasonText, type Reason } from '../../i18n/reasonText';

/** The rule of an idle checker with its limits and the measured values, in the user's language. */
export function IdleReason({ item }: { item: Item }) {
  const { i18n } = useTranslation();
  const reason = { message: String(item['reason']), coded: item['coded'] } as Reason;
  return reasonText(i18n, reason);
}
