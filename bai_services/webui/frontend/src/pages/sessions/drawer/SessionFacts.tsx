import { Alert, Descriptions, Tag, Typography } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Elapsed } from '../../../components/Elapsed';
import { ImageLabel } from '../../../components/ImageLabel';
import { personal } from '../../../components/personal';
import { SlotTags } from '../../../components/SlotTags';
import { SessionTag, StatusTag } from '../../../components/StatusTag';
import { formatTime } from '../../../components/time';
import { isPending, type Session } from '../../../data/sessions/sessions';
import { statusText } from '../../../i18n/reasonText';
import { readDataSearch } from '../../data/search';
import { DeviceTags } from '../list/DeviceTags';
import { readSessionsSearch } from '../search';
import { hasLimits } from './CheckLimit';
import { TimeLimits } from './TimeLimits';

/** Notices about a session, and its fields that have a value. */
export function SessionFacts({ session }: { session: Session }) {
  const { t, i18n } = useTranslation();
  const timeOf = (time: string | null) => time && formatTime(time, i18n.language);
  const info = statusText(i18n, session);
  const rows = [
    { key: 'status', children: <SessionTag session={session} /> },
    { key: 'info', children: info && <bdi>{info}</bdi> },
    {
      key: 'result',
      children:
        session.exit_code !== null && t('sessions.exit-code', { code: String(session.exit_code) })
    },
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
    {
      key: 'image',
      children: <ImageLabel name={session.image} architecture={session.architecture} />
    },
    { key: 'project', children: `${session.domain} / ${session.project}` },
    { key: 'group', children: session.resource_group },
    { key: 'agent', children: session.agent },
    { key: 'owner', children: personal(session.owner) },
    { key: 'folders', children: session.mounts.length > 0 && <Mounts session={session} /> },
    {
      key: 'dependencies',
      children: session.dependencies.length > 0 && <Dependencies session={session} />
    },
    {
      key: 'idle',
      children: session.status === 'RUNNING' && hasLimits(session) && (
        <TimeLimits session={session} />
      )
    },
    { key: 'priority', children: isPending(session) && String(session.priority) },
    { key: 'created', children: timeOf(session.created_at) },
    { key: 'scheduled', children: timeOf(session.scheduled_at) },
    { key: 'ended', children: timeOf(session.terminated_at) }
  ];
  return (
    <>
      {session.notices.map(notice => (
        <Alert key={notice} type="info" showIcon title={notice} style={{ marginBottom: 12 }} />
      ))}
      <Descriptions
        size="small"
        column={1}
        items={rows
          .filter(row => row.children)
          .map(row => ({ ...row, label: t(`sessions.${row.key}`) }))}
      />
    </>
  );
}

function Mounts({ session }: { session: Session }) {
  const { t } = useTranslation();
  return session.mounts.map(({ vfolder, vfolder_id: folder, subpath, path, permission }) => (
    <div key={path}>
      <Link to="/data" search={readDataSearch({ folder, path: subpath })}>
        {[vfolder, subpath].filter(Boolean).join('/')}
      </Link>{' '}
      → {path} ({t(`permissions.${permission}`)})
    </div>
  ));
}

function Dependencies({ session }: { session: Session }) {
  return session.dependencies.map(({ id, name, status }) => (
    <Tag key={id}>
      <Link to="/sessions" search={old => readSessionsSearch({ ...old, session: id })}>
        {name}
      </Link>{' '}
      <StatusTag status={status} />
    </Tag>
  ));
}
