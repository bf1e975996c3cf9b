import { Alert, App, Button, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { formatSeconds, formatTime, useNow } from '../../../components/time';
import { ApiError } from '../../../data/client';
import {
  suspensionQuery,
  useResumeSession,
  wasPreempted,
  type Session
} from '../../../data/sessions/sessions';
import { replacesData } from '../../../data/connection';

const NOT_FOUND = 404;

/** State of a suspension: time left for saving, what was saved, and when the home is deleted. */
export function Suspension({ session }: { session: Session }) {
  const { t, i18n } = useTranslation();
  const { data, error, refetch } = useQuery(suspensionQuery(session));
  const now = useNow();
  const isWaiting = wasPreempted(session);
  if (error instanceof ApiError && error.status === NOT_FOUND) {
    // A preempted session that saved nothing.
    return null;
  }
  if (replacesData(error, data)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!data) {
    return <Skeleton active paragraph={{ rows: 1 }} />;
  }
  const left = Math.max(0, (Date.parse(data.deadline) - now) / 1000);
  const time = formatSeconds(left, i18n.language);
  const title =
    data.phase === 'preparing'
      ? t('sessions.suspension-preparing', { name: data.requested_by, time })
      : t(`sessions.suspension-${isWaiting ? 'preempted' : data.phase}`, {
          name: data.requested_by
        });
  const { report } = data;
  const facts: [string, string][] = [
    ['expires', data.expires_at ? formatTime(data.expires_at, i18n.language) : ''],
    ['documents', report?.saved_documents.join(', ') ?? ''],
    ['documents-lost', report?.unsaved_documents.join(', ') ?? ''],
    ['variables', report?.saved_variables.join(', ') ?? ''],
    ['variables-lost', report?.unsaved_variables.join(', ') ?? ''],
    ['hook', report?.has_hook ? `${report.hook_exit_code ?? '–'} ${report.hook_message}` : '']
  ];
  const isSilent = report === null && data.phase !== 'preparing';
  return (
    <Alert
      style={{ marginBottom: 16 }}
      type={data.phase === 'preparing' ? 'warning' : 'info'}
      title={title}
      description={
        <>
          {isSilent && <div>{t('sessions.suspension-silent')}</div>}
          {facts
            .filter(([, text]) => text)
            .map(([key, text]) => (
              <div key={key} style={{ overflowWrap: 'anywhere' }}>
                {t(`sessions.suspension-${key}`)}: {text}
              </div>
            ))}
        </>
      }
    />
  );
}

export function ResumeButton({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const resume = useResumeSession(session.id);
  return (
    <Button
      type="primary"
      loading={resume.isPending}
      onClick={() =>
        resume.mutate(undefined, { onError: error => void message.error(error.message) })
      }
    >
      {t('sessions.resume')}
    </Button>
  );
}
