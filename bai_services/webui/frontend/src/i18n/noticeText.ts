import type { i18n as I18n } from 'i18next';
import { withLocalTimes } from '../components/time';

/** `NOTICE` in `bai_services/agent/devices/simulated.py`. */
const SIMULATED_GPUS =
  'The GPUs of this session are simulated: they are scheduled and counted like real GPUs, ' +
  'but programs cannot compute on them.';

/** A notice of a session in the user's language; in English if there is no translation. */
export const noticeText = (i18n: I18n, notice: string): string =>
  notice === SIMULATED_GPUS
    ? i18n.t('sessions.simulated-gpus')
    : withLocalTimes(notice, i18n.language);
