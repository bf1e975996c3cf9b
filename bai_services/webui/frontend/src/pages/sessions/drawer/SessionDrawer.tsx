import { useState } from 'react';
import { App, Button, Drawer, Flex, Grid, Skeleton, Tabs } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import {
  hasApps,
  hasSuspension,
  isEnded,
  isOnlyRead,
  isPending,
  isSuspended,
  serverUrl,
  sessionWithLimitsQuery,
  useStopSessions,
  wasPreempted,
  type Session
} from '../../../data/sessions/sessions';
import { CommandLine } from './CommandLine';
import { OpenSession } from '../OpenSession';
import { SessionApps } from './SessionApps';
import { SessionFacts } from './SessionFacts';
import { SessionGraph } from './SessionGraph';
import { SessionHistory } from './SessionHistory';
import { SessionKernels } from './SessionKernels';
import { SessionLogs } from './SessionLogs';
import { SessionMenu } from './SessionMenu';
import { SessionUsage } from './SessionUsage';
import { StartProgress } from './StartProgress';
import { ResumeButton, Suspension } from './Suspension';
import { WhyPending } from './WhyPending';

const WIDTH = 720;

interface SessionDrawerProps {
  id: string | undefined;
  /** The tab that is open at first; undefined: see `tabFor`. */
  panel?: string | undefined;
  onClose: () => void;
}

/** Drawer with one session: its status, why it is pending, its facts, and tabs such as logs. */
export function SessionDrawer({ id, panel, onClose }: SessionDrawerProps) {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().md ?? true;
  const {
    data: session,
    error,
    refetch
  } = useQuery({
    ...sessionWithLimitsQuery(id ?? ''),
    enabled: id !== undefined
  });
  const shown = session?.id === id ? session : undefined;
  return (
    <Drawer
      open={id !== undefined}
      onClose={onClose}
      size={isWide ? WIDTH : '100%'}
      destroyOnHidden
      title={shown ? shown.name : t('sessions.session')}
      extra={shown && <SessionActions session={shown} />}
    >
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!shown && !error && <Skeleton active />}
      {shown && <SessionDetail key={`${shown.id} ${panel}`} session={shown} panel={panel} />}
    </Drawer>
  );
}

function SessionActions({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const stop = useStopSessions();
  const kept = session.mounts.filter(({ permission }) => permission !== 'ro');
  const confirm = () => {
    const texts = isPending(session)
      ? {
          title: t('sessions.cancel-one', { name: session.name }),
          content: t('sessions.cancel-help'),
          okText: t('sessions.cancel-ok'),
          cancelText: t('sessions.cancel-keep')
        }
      : {
          title: t('sessions.stop-one', { name: session.name }),
          content: (
            <>
              <p>{t(isSuspended(session) ? 'sessions.end-suspended' : 'sessions.stop-warning')}</p>
              {kept.length > 0 && (
                <p>{t('sessions.stop-kept', { paths: kept.map(({ path }) => path).join(', ') })}</p>
              )}
            </>
          ),
          okText: t('sessions.stop')
        };
    modal.confirm({
      ...texts,
      okButtonProps: { danger: true },
      onOk: async () => {
        const failures = await stop.mutateAsync([session]);
        failures.forEach(failure => void message.error(failure.error.message));
      }
    });
  };
  return (
    <Flex gap="small">
      {!isOnlyRead(session) && <SessionMenu session={session} />}
      {isSuspended(session) && !isOnlyRead(session) && <ResumeButton session={session} />}
      <OpenSession session={session} type="primary" />
      {!isEnded(session) && !isOnlyRead(session) && (
        <Button
          danger
          onClick={confirm}
          disabled={session.status === 'TERMINATING' && !hasSuspension(session)}
        >
          {t(isPending(session) ? 'sessions.cancel' : 'sessions.stop')}
        </Button>
      )}
    </Flex>
  );
}

interface SessionDetailProps {
  session: Session;
  panel: string | undefined;
}

function SessionDetail({ session, panel }: SessionDetailProps) {
  return (
    <>
      <StartProgress session={session} />
      {(hasSuspension(session) || wasPreempted(session)) && !isOnlyRead(session) && (
        <Suspension session={session} />
      )}
      {isPending(session) && <WhyPending session={session} />}
      <SessionFacts session={session} />
      <SessionTabs session={session} panel={panel} />
    </>
  );
}

/** The tab that is shown until the user chooses one. */
function tabFor(session: Session): string {
  if (isOnlyRead(session)) {
    return 'usage';
  }
  return serverUrl(session) ? 'apps' : 'logs';
}

function SessionTabs({ session, panel }: SessionDetailProps) {
  const { t } = useTranslation();
  const [chosen, setChosen] = useState(panel);
  const tab = chosen ?? tabFor(session);
  const [kernel, setKernel] = useState(session.kernels[0]?.hostname ?? 'main1');
  const showLog = (hostname: string) => {
    setKernel(hostname);
    setChosen('logs');
  };
  const tabs = {
    // Sessions of other types run no Jupyter server.
    ...(hasApps(session) && { apps: <SessionApps session={session} /> }),
    usage: <SessionUsage session={session} kernel={kernel} onKernel={setKernel} />,
    ...(!isOnlyRead(session) && {
      logs: <SessionLogs session={session} kernel={kernel} onKernel={setKernel} />
    }),
    history: <SessionHistory id={session.id} />,
    kernels: <SessionKernels session={session} onShowLog={showLog} />,
    dependencies: <SessionGraph id={session.id} />,
    commands: <CommandLine session={session} />
  };
  return (
    <Tabs
      activeKey={tab}
      onChange={setChosen}
      // Unmount hidden tabs, so that they do not follow the log.
      destroyOnHidden
      items={Object.entries(tabs).map(([key, children]) => ({
        key,
        label: t(`sessions.${key}`),
        children
      }))}
    />
  );
}
