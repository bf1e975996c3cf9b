import { useState } from 'react';
import { App, Button, Descriptions, Drawer, Flex, Grid, Skeleton, Tabs, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Elapsed } from '../../components/Elapsed';
import { ErrorNotice } from '../../components/ErrorNotice';
import { SlotTags } from '../../components/SlotTags';
import { StatusTag } from '../../components/StatusTag';
import { formatTime } from '../../components/time';
import {
  isEnded,
  isPending,
  sessionQuery,
  useStopSessions,
  type Session
} from '../../data/sessions';
import { readDataSearch } from '../data/search';
import { CommandLine } from './CommandLine';
import { DeviceTags } from './DeviceTags';
import { IdleCountdown } from './IdleCountdown';
import { SessionApps } from './SessionApps';
import { SessionGraph } from './SessionGraph';
import { SessionHistory } from './SessionHistory';
import { SessionKernels } from './SessionKernels';
import { SessionLogs } from './SessionLogs';
import { OpenSession } from './OpenSession';
import { SessionMenu } from './SessionMenu';
import { SessionUsage } from './SessionUsage';
import { WhyPending } from './WhyPending';

const WIDTH = 720;

/** Drawer with one session: status, reasons, folders, log and history. */
export function SessionDrawer({ id, onClose }: { id: string | undefined; onClose: () => void }) {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().md ?? true;
  const {
    data: session,
    error,
    refetch
  } = useQuery({
    ...sessionQuery(id ?? ''),
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
      {shown && <SessionDetail key={shown.id} session={shown} />}
    </Drawer>
  );
}

function SessionActions({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const stop = useStopSessions();
  const confirm = () => {
    modal.confirm({
      title: t('sessions.stop-one', { name: session.name }),
      content: t('sessions.stop-warning'),
      okText: t(isPending(session) ? 'sessions.cancel' : 'sessions.stop'),
      okButtonProps: { danger: true },
      onOk: async () => {
        const failures = await stop.mutateAsync([session]);
        failures.forEach(failure => void message.error(failure.error.message));
      }
    });
  };
  return (
    <Flex gap="small">
      <SessionMenu session={session} />
      <OpenSession session={session} type="primary" />
      {!isEnded(session) && (
        <Button danger onClick={confirm} disabled={session.status === 'TERMINATING'}>
          {t(isPending(session) ? 'sessions.cancel' : 'sessions.stop')}
        </Button>
      )}
    </Flex>
  );
}

function SessionDetail({ session }: { session: Session }) {
  const { t, i18n } = useTranslation();
  const rows = [
    { key: 'status', children: <StatusTag status={session.status} /> },
    { key: 'info', children: session.status_info },
    { key: 'id', children: <Typography.Text copyable>{session.id}</Typography.Text> },
    { key: 'type', children: t(`types.${session.type}`) },
    { key: 'elapsed', children: <Elapsed session={session} /> },
    { key: 'resources', children: <SlotTags slots={session.requested} /> },
    { key: 'devices', children: session.devices.length > 0 && <DeviceTags session={session} /> },
    {
      key: 'cluster',
      children:
        session.cluster_size > 1 &&
        t('sessions.cluster-size', { count: session.cluster_size, mode: session.cluster_mode })
    },
    { key: 'image', children: session.image },
    { key: 'project', children: `${session.domain} / ${session.project}` },
    { key: 'group', children: session.resource_group },
    { key: 'agent', children: session.agent },
    { key: 'owner', children: session.owner },
    {
      key: 'folders',
      children:
        session.mounts.length > 0 &&
        session.mounts.map(mount => (
          <div key={mount.path}>
            <Link to="/data" search={readDataSearch({ folder: mount.vfolder_id })}>
              {mount.vfolder}
            </Link>{' '}
            → {mount.path} ({t(`permissions.${mount.permission}`)})
          </div>
        ))
    },
    {
      key: 'idle',
      children: (session.idle_ends_at ?? session.ends_at) && <IdleCountdown session={session} />
    },
    { key: 'priority', children: isPending(session) && String(session.priority) },
    {
      key: 'ends',
      children: session.ends_at && formatTime(session.ends_at, i18n.language)
    },
    { key: 'created', children: formatTime(session.created_at, i18n.language) },
    {
      key: 'scheduled',
      children: session.scheduled_at && formatTime(session.scheduled_at, i18n.language)
    }
  ];
  return (
    <>
      {isPending(session) && <WhyPending session={session} />}
      <Descriptions
        size="small"
        column={1}
        items={rows
          .filter(row => row.children)
          .map(row => ({ ...row, label: t(`sessions.${row.key}`) }))}
      />
      <SessionTabs session={session} />
    </>
  );
}

function SessionTabs({ session }: { session: Session }) {
  const { t } = useTranslation();
  const [tab, setTab] = useState('logs');
  const [kernel, setKernel] = useState(session.kernels[0]?.hostname ?? 'main1');
  const showLog = (hostname: string) => {
    setKernel(hostname);
    setTab('logs');
  };
  const tabs = {
    // Sessions of other types run no Jupyter server.
    ...(session.type === 'interactive' && { apps: <SessionApps session={session} /> }),
    usage: <SessionUsage session={session} kernel={kernel} onKernel={setKernel} />,
    logs: <SessionLogs session={session} kernel={kernel} onKernel={setKernel} />,
    history: <SessionHistory id={session.id} />,
    kernels: <SessionKernels session={session} onShowLog={showLog} />,
    dependencies: <SessionGraph id={session.id} />,
    commands: <CommandLine session={session} />
  };
  return (
    <Tabs
      activeKey={tab}
      onChange={setTab}
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
