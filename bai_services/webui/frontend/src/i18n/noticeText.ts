import type { i18n as I18n } from 'i18next';
import english from '../../../../i18n/en/device_notices.json';
import { withLocalTimes } from '../components/time';

// The key of each notice by its English text, which agents send.
const KEYS = new Map(Object.entries(english).map(([key, text]) => [text, key]));

/** A notice of a session in the user's language; in English if there is no translation. */
export function noticeText(i18n: I18n, notice: string): string {
  const key = KEYS.get(notice);
  return key === undefined
    ? withLocalTimes(notice, i18n.language)
    : i18n.t(`deviceNotices.${key}`, notice);
}
