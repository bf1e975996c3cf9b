import { Alert } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatSeconds, formatTime, useNow } from '../../../components/time';
import type { Session } from '../../../data/sessions/sessions';
import { reasonText } from '../../../i18n/reasonText';

/** When and why a running session is preempted, and whether it returns to the queue. */
export function PreemptionWarning({ session }: { session: Session }) {
  const { preemption, status } = session;
  return preemption && status === 'RUNNING' ? <Warning preemption={preemption} /> : null;
}

function Warning({ preemption }: { preemption: NonNullable<Session['preemption']> }) {
  const { t, i18n } = useTranslation();
  const seconds = Math.max(0, (Date.parse(preemption.stops_at) - useNow()) / 1000);
  const time = formatSeconds(seconds, i18n.language);
  return (
    <Alert
      type="warning"
      showIcon
      role="alert"
      style={{ marginBottom: 12 }}
      title={
        <span title={formatTime(preemption.stops_at, i18n.language)}>
          {seconds === 0 ? t('sessions.stopping-now') : t('sessions.preemption-ends', { time })}
        </span>
      }
      description={
        <>
          {reasonText(i18n, { message: preemption.reason, coded: preemption.coded })}
          <br />
          {t(`sessions.preemption-${preemption.mode}`)}
        </>
      }
    />
  );
}
