import { useState } from 'react';
import { Alert, App, Button, Checkbox, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { useStopSessions, type Session } from '../../../data/sessions/sessions';

interface StopSessionsProps {
  sessions: readonly Session[];
  onDone: () => void;
}

/** Stops the selected sessions, optionally by force, after a confirmation that lists them. */
export function StopSessions({ sessions, onDone }: StopSessionsProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [isOpen, setIsOpen] = useState(false);
  const [isForced, setIsForced] = useState(false);
  const stop = useStopSessions(isForced);
  const run = async () => {
    const failures = await stop.mutateAsync([...sessions]);
    failures.forEach(
      ({ session, error }) => void message.error(`${session.name}: ${error.message}`)
    );
    setIsOpen(false);
    onDone();
  };
  return (
    <>
      <Button danger disabled={sessions.length === 0} onClick={() => setIsOpen(true)}>
        {t('sessions.stop-selected', { count: sessions.length })}
      </Button>
      <Modal
        open={isOpen}
        onCancel={() => setIsOpen(false)}
        afterClose={() => setIsForced(false)}
        title={t('sessions.stop-title', { count: sessions.length })}
        okText={t(isForced ? 'sessions.stop-by-force' : 'sessions.stop')}
        okButtonProps={{ danger: true }}
        onOk={() => void run()}
        confirmLoading={stop.isPending}
      >
        <p>{t('sessions.stop-warning')}</p>
        <ul className="bai-stop-list">
          {sessions.map(session => (
            <li key={session.id}>{session.name}</li>
          ))}
        </ul>
        <Checkbox checked={isForced} onChange={event => setIsForced(event.target.checked)}>
          {t('sessions.force')}
        </Checkbox>
        {isForced && (
          <Alert
            type="warning"
            showIcon
            title={t('sessions.force-warning')}
            style={{ marginTop: 8 }}
          />
        )}
      </Modal>
    </>
  );
}
