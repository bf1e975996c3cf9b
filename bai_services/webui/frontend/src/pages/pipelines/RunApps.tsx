import { useEffect, useRef } from 'react';
import { Alert, Button, Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { UserText } from '../../components/UserText';
import { useOpenRunApp, type RunApp } from '../../data/pipelines/pipelines';
import { isEnded, serverUrl, sessionQuery } from '../../data/sessions/sessions';

const REFRESH_MILLIS = 1_000;
// Product names.
const APPS = [
  { app: 'tensorboard', title: 'TensorBoard' },
  { app: 'mlflow', title: 'MLflow' }
] as const;

/** Buttons that open an app on the directory of a run, in a session of the user. */
export function RunApps({ runId }: { runId: string }) {
  const { t } = useTranslation();
  const open = useOpenRunApp(runId);
  const chosen = APPS.find(({ app }) => app === open.variables);
  return (
    <Flex vertical gap="small" style={{ marginBottom: 16 }}>
      <Flex wrap gap="small">
        {APPS.map(({ app, title }) => (
          <Button
            key={app}
            size="small"
            aria-label={t('apps.open', { title })}
            loading={open.isPending && open.variables === app}
            disabled={open.isPending}
            onClick={() => open.mutate(app)}
          >
            {title}
          </Button>
        ))}
      </Flex>
      {open.error && <ErrorNotice error={open.error} />}
      {open.data && chosen && (
        <OpenedApp
          key={`${open.data.session}/${chosen.app}`}
          made={open.data}
          title={chosen.title}
        />
      )}
    </Flex>
  );
}

/** The state of the session; when it runs, the app opens in a new tab. */
function OpenedApp({ made, title }: { made: RunApp; title: string }) {
  const { t } = useTranslation();
  const wasOpened = useRef(false);
  const { data: session, error } = useQuery({
    ...sessionQuery(made.session),
    refetchInterval: ({ state }) =>
      state.data && (serverUrl(state.data) || isEnded(state.data)) ? false : REFRESH_MILLIS
  });
  const server = session && serverUrl(session);
  const url = server && `${server}${made.path}`;
  useEffect(() => {
    // The browser may block the tab if the start took long; then the link below opens it.
    if (url && !wasOpened.current) {
      wasOpened.current = true;
      window.open(url, '_blank', 'noopener');
    }
  }, [url]);
  if (error) {
    return <ErrorNotice error={error} />;
  }
  const link = (
    <Link to="/sessions" search={{ session: made.session }}>
      <UserText text={made.name} />
    </Link>
  );
  const state = session && t(`status.${session.status}`, session.status);
  return (
    <Alert
      // A session that has ended otherwise is no error: the user may have stopped it.
      type={session?.status === 'ERROR' ? 'error' : 'info'}
      showIcon
      title={
        <Flex wrap gap="small" align="center">
          {link}
          {state}
          {url && (
            <a href={url} target="_blank" rel="noopener noreferrer">
              {t('apps.open', { title })}
            </a>
          )}
        </Flex>
      }
      description={session && isEnded(session) && <UserText text={session.status_info} />}
    />
  );
}
