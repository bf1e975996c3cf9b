import { InfoCircleOutlined } from '@ant-design/icons';
import { Button, Popover, Progress } from 'antd';
import type { i18n as I18n } from 'i18next';
import { useTranslation } from 'react-i18next';
import { SessionTag, StatusTag } from '../../components/StatusTag';
import { noticeText } from '../../i18n/noticeText';
import { statusText } from '../../i18n/reasonText';
import {
  exitCodeOf,
  hasFailed,
  hasSuspension,
  isPending,
  type Session
} from '../../data/sessions/sessions';

/** What the agent does before the session starts, for example the pull of its image. */
interface Preparation {
  stage?: string;
  message?: string;
  percent?: number | null;
}

/** The status with its reasons, if there are any, and the progress of an image pull. */
export function SessionStatus({ session }: { session: Session }) {
  const { t, i18n } = useTranslation();
  const progress = session.progress as Preparation;
  const isPulling = session.status === 'PREPARING' && progress.stage === 'pull';
  const info = statusText(i18n, session);
  const code = exitCodeOf(session);
  const reasons = reasonsOf(session, info, i18n);
  return (
    <div className="bai-tags">
      {isPulling ? <StatusTag status="PULLING" /> : <SessionTag session={session} />}
      {hasFailed(session) && code !== null && (
        <span className="bai-secondary">{t('sessions.exit-code', { code: String(code) })}</span>
      )}
      {reasons.length > 0 && (
        <Popover
          trigger={['click', 'hover']}
          content={
            <div style={{ maxWidth: 360 }}>
              {reasons.map(reason => (
                <div key={reason}>{reason}</div>
              ))}
            </div>
          }
        >
          <Button
            type="text"
            size="small"
            icon={<InfoCircleOutlined />}
            aria-label={t('sessions.why-status', { name: session.name })}
          />
        </Popover>
      )}
      {isPulling && typeof progress.percent === 'number' && (
        <Progress
          size="small"
          percent={Math.round(progress.percent)}
          aria-label={progress.message ?? ''}
          style={{ width: 80, margin: 0 }}
        />
      )}
      {(isPending(session) || hasSuspension(session) || session.status === 'ERROR') && info && (
        <span className="bai-secondary bai-status-info">{info}</span>
      )}
    </div>
  );
}

/** Reasons for the session's status and notices for its owner, without duplicates. */
function reasonsOf({ notices, progress, status }: Session, info: string, i18n: I18n): string[] {
  const { message = '' }: Preparation = status === 'PREPARING' ? progress : {};
  const others = [message, ...notices].map(text => noticeText(i18n, text));
  return [...new Set([info, ...others])].filter(text => text !== '');
}
