import { Progress, Steps, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Session } from '../../../data/sessions/sessions';

const STEPS = ['PENDING', 'SCHEDULED', 'PREPARING', 'CREATING', 'RUNNING'];
// CREATING is the step between the statuses PREPARED and RUNNING, and not a status.
const NEXT: Partial<Record<string, string>> = { PREPARED: 'CREATING' };

/** The steps of a session's start; nothing for a session that runs, stops or has ended. */
export function StartProgress({ session }: { session: Session }) {
  const { t } = useTranslation();
  const current = STEPS.indexOf(NEXT[session.status] ?? session.status);
  if (current < 0 || session.status === 'RUNNING') {
    return null;
  }
  const percent = session.progress['percent'];
  const text = session.progress['message'];
  return (
    <section aria-label={t('sessions.start-progress')} style={{ marginBottom: 16 }}>
      <Steps
        className="bai-steps"
        size="small"
        type="dot"
        responsive={false}
        current={current}
        items={STEPS.map(status => ({ title: t(`status.${status}`) }))}
      />
      {typeof percent === 'number' && (
        <Progress percent={Math.round(percent)} aria-label={t('kernels.progress')} />
      )}
      {typeof text === 'string' && <Typography.Text type="secondary">{text}</Typography.Text>}
    </section>
  );
}
