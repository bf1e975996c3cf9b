import { Alert, Descriptions, Tag, Typography } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Elapsed } from '../../../components/Elapsed';
import { ImageLabel } from '../../../components/ImageLabel';
import { personal } from '../../../components/personal';
import { SlotTags } from '../../../components/SlotTags';
import { SessionTag, StatusTag } from '../../../components/StatusTag';
import { formatTime } from '../../../components/time';
import { exitCodeOf, isPending, otherNotices, type Session } from '../../../data/sessions/sessions';
import { noticeText } from '../../../i18n/noticeText';
import { statusText } from '../../../i18n/reasonText';
import { readDataSearch } from '../../data/search';
import { DeviceTags } from '../list/DeviceTags';
import { readSessionsSearch } from '../search';
import { PreemptionWarning } from './PreemptionWarning';
import { hasLimits, TimeLimits } from './TimeLimits';

/** Notices about a session, and its fields that have a value. */
export function SessionFacts({ session }: { session: Session }) {
  const { t, i18n } = useTranslation();
  const timeOf = (time: string | null) => time && formatTime(time, i18n.language);
  const info = statusText(i18n, session);
  const code = exitCodeOf(session);
  const rows = [
    { key: 'status', children: <SessionTag session={session} /> },
    // `WhyPending` shows the reason of a pending session.
    { key: 'info', children: !isPending(session) && info && <bdi>{info}</bdi> },
    {
      key: 'result',
      children: code !== null && t('sessions.exit-code', { code: String(code) })
    },
    { key: 'id', children: <Typography.Text copyable>{session.id}</Typography.Text> },
    { key: 'type', children: t(`types.${session.type}`) },
    { key: 'elapsed', children: <Elapsed session={session} /> },
    { key: 'resources', children: <SlotTags slots={session.requested} /> },
    { key: 'elastic', children: session.elasticity && <ElasticSize session={session} /> },
    { key: 'last-resize', children: session.resize && <LastResize session={session} /> },
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
      children: hasLimits(session) && <TimeLimits session={session} />
    },
    { key: 'priority', children: isPending(session) && String(session.priority) },
    { key: 'job-priority', children: session.job_priority > 0 && String(session.job_priority) },
    { key: 'preemption', children: !session.is_preemptible && t('sessions.preemption-never') },
    { key: 'restarts', children: session.restart_count > 0 && String(session.restart_count) },
    { key: 'created', children: timeOf(session.created_at) },
    { key: 'scheduled', children: timeOf(session.scheduled_at) },
    { key: 'ended', children: timeOf(session.terminated_at) }
  ];
  return (
    <>
      <PreemptionWarning session={session} />
      {otherNotices(session).map(notice => (
        <Alert
          key={notice}
          type="info"
          showIcon
          title={noticeText(i18n, notice)}
          style={{ marginBottom: 12 }}
        />
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

/** The sizes between which the manager resizes a session. */
function ElasticSize({ session: { elasticity } }: { session: Session }) {
  return (
    elasticity && (
      <>
        <SlotTags slots={elasticity.minimum} /> – <SlotTags slots={elasticity.preferred} />
      </>
    )
  );
}

/** When and how a session was last resized, and why this failed. */
function LastResize({ session: { resize } }: { session: Session }) {
  const { t, i18n } = useTranslation();
  return (
    resize && (
      <>
        {t(`sessions.resize-${resize.state}`, {
          time: formatTime(resize.finished_at ?? resize.requested_at, i18n.language)
        })}{' '}
        <SlotTags slots={resize.requested} /> {resize.message && <bdi>{resize.message}</bdi>}
      </>
    )
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
