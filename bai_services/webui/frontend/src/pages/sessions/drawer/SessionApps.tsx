import { useState } from 'react';
import { Alert, App, Button, Flex, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { CardTable } from '../../../components/CardTable';
import { ScrollArea } from '../../../components/ScrollArea';
import {
  appAddress,
  appsQuery,
  appTitle,
  useStartServer,
  type SessionApp
} from '../../../data/sessions/apps';
import { meQuery } from '../../../data/accounts/me';
import { isOpenedOnDemand, type Session } from '../../../data/sessions/sessions';
import { ConnectDialog } from '../ConnectDialog';
import { ShareDialog } from '../ShareDialog';

/** The apps of a session, which the session's owner can open and share. */
export function SessionApps({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { data, error, refetch } = useQuery(appsQuery(session.id));
  if (error) return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  if (!data || !me) return <Skeleton active />;
  const isOwner = session.owner === me.username;
  const isRunning = session.status === 'RUNNING';
  return (
    <>
      {!isOwner && <Alert type="info" showIcon title={t('apps.owner-only')} />}
      {isOwner && !isRunning && <Alert type="info" showIcon title={t('apps.not-running')} />}
      {isOwner && isRunning && isOpenedOnDemand(session) && (
        <Alert type="info" showIcon title={t('apps.beside-command')} />
      )}
      <ScrollArea label={t('sessions.apps')}>
        <CardTable<SessionApp>
          rowKey="name"
          size="small"
          pagination={false}
          dataSource={data.items}
          columns={[
            { key: 'title', title: t('apps.app'), render: (_, app) => appTitle(t, app) },
            {
              key: 'category',
              title: t('apps.category'),
              responsive: ['sm'],
              render: (_, { category }) => t(`apps.category-${category}`)
            },
            {
              key: 'start',
              title: t('apps.start'),
              render: (_, { kind }) => t(`apps.kind-${startOf(session, kind)}`)
            },
            {
              key: 'open',
              title: '',
              align: 'end',
              render: (_, app) => isOwner && isRunning && <AppButtons session={session} app={app} />
            }
          ]}
        />
      </ScrollArea>
    </>
  );
}

/** When an app starts; the server of a batch session starts when its first app is opened. */
const startOf = (session: Session, kind: SessionApp['kind']) =>
  kind === 'builtin' && isOpenedOnDemand(session) ? 'process' : kind;

/** Open an app, connect to it from the user's computer, or share it. */
function AppButtons({ session, app }: { session: Session; app: SessionApp }) {
  const { t } = useTranslation();
  const [dialog, setDialog] = useState<'connect' | 'share'>();
  const close = () => setDialog(undefined);
  return (
    <Flex gap="small" justify="end">
      {app.kind === 'tcp' ? (
        <Button
          size="small"
          aria-label={t('apps.connect-to', { title: appTitle(t, app), name: session.name })}
          onClick={() => setDialog('connect')}
        >
          {t('apps.connect')}
        </Button>
      ) : (
        <OpenApp session={session} app={app} />
      )}
      {app.is_shareable && !isOpenedOnDemand(session) && (
        <Button
          size="small"
          aria-label={t('apps.share-title', { title: appTitle(t, app) })}
          onClick={() => setDialog('share')}
        >
          {t('apps.share')}
        </Button>
      )}
      {dialog === 'connect' && <ConnectDialog session={session} app={app} onClose={close} />}
      {dialog === 'share' && <ShareDialog session={session} app={app} onClose={close} />}
    </Flex>
  );
}

/**
 * Start the server of a batch session, then show an address in a new tab. The tab is opened at
 * once, because the browser would block a tab that opens long after the click.
 */
function useTab(session: Session, address: string) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const server = useStartServer(session.id);
  const start = async () => {
    const tab = window.open('', '_blank');
    if (tab) {
      tab.opener = null;
      tab.document.title = t('apps.starting');
    }
    try {
      await server.mutateAsync();
      tab?.location.replace(new URL(address, location.href).href);
    } catch (error) {
      tab?.close();
      void message.error((error as Error).message);
    }
  };
  return { start, isStarting: server.isPending };
}

// These apps read a folder (TensorBoard) or a script (Streamlit, Gradio) that the user chooses in
// the session panel of JupyterLab.
const WITH_PATH = ['tensorboard', 'streamlit', 'gradio'];

/**
 * Open an app in a new tab. If the app uses a path chosen by the user, or a port on which the
 * user's own program must listen, show a hint first.
 */
function OpenApp({ session, app }: { session: Session; app: SessionApp }) {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const { start, isStarting } = useTab(session, appAddress(session, app));
  const link = isOpenedOnDemand(session)
    ? { onClick: () => void start() }
    : { href: appAddress(session, app), target: '_blank', rel: 'noopener' };
  const hint =
    app.kind === 'port'
      ? t('apps.port-hint', { port: app.port })
      : WITH_PATH.includes(app.name) && t(`apps.path-hint-${app.name}`);
  const confirm = () => {
    modal.confirm({
      title: t('apps.open', { title: appTitle(t, app) }),
      content: hint,
      okText: t('sessions.open'),
      okButtonProps: link
    });
  };
  return (
    <Button
      size="small"
      aria-label={t('apps.open', { title: appTitle(t, app) })}
      loading={isStarting}
      {...(hint ? { onClick: confirm } : link)}
    >
      {t('sessions.open')}
    </Button>
  );
}
