import { App, Button, Flex, Popconfirm } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { SessionTag } from '../components/StatusTag';
import { appAddress, appsQuery } from '../data/sessions/apps';
import { OpenSession } from '../pages/sessions/OpenSession';
import { isEnded, serverUrl, sessionQuery, useStopSessions } from '../data/sessions/sessions';

const TERMINAL = 'terminal';
// Above AntD's notifications, whose z-index is 2050; the default z-index of a question is 1060.
const QUESTION_Z_INDEX = 2060;

/** The status of a new session, and buttons to open its apps or log and to stop it. */
export function SessionNotice({ id }: { id: string }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { data: session } = useQuery(sessionQuery(id));
  const isOpen = session !== undefined && serverUrl(session) !== null;
  const { data: apps } = useQuery({ ...appsQuery(id), enabled: isOpen });
  const stop = useStopSessions();
  if (!session) {
    return null;
  }
  const terminal = apps?.items.find(({ name }) => name === TERMINAL);
  const confirm = async () => {
    const failures = await stop.mutateAsync([session]);
    failures.forEach(({ error }) => void message.error(error.message));
  };
  return (
    <Flex wrap justify="space-between" align="center" gap="small">
      <SessionTag session={session} />
      <Flex wrap gap={4}>
        <OpenSession session={session} type="primary" size="small" />
        {isOpen && (
          <Link to="/sessions" search={{ session: id, panel: 'apps' }}>
            <Button size="small">{t('sessions.apps')}</Button>
          </Link>
        )}
        {isOpen && terminal && (
          <Button size="small" href={appAddress(session, terminal)} target="_blank" rel="noopener">
            {t('notices.terminal')}
          </Button>
        )}
        <Link to="/sessions" search={{ session: id, panel: 'logs' }}>
          <Button size="small">{t('sessions.logs')}</Button>
        </Link>
        {!isEnded(session) && (
          <Popconfirm
            zIndex={QUESTION_Z_INDEX}
            title={t('sessions.stop-one', { name: session.name })}
            description={t('sessions.stop-warning')}
            okText={t('sessions.stop')}
            okButtonProps={{ danger: true }}
            onConfirm={() => void confirm()}
          >
            <Button size="small" danger loading={stop.isPending}>
              {t('sessions.stop')}
            </Button>
          </Popconfirm>
        )}
      </Flex>
    </Flex>
  );
}
