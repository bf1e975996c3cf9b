import { useMemo } from 'react';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Grid } from 'antd';
import type { TFunction } from 'i18next';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../../components/amount';
import { Elapsed } from '../../../components/Elapsed';
import type { ListColumn } from '../../../components/list/ListTable';
import { SlotTags } from '../../../components/SlotTags';
import { Tag } from '../../../components/Tag';
import { formatTime } from '../../../components/time';
import { meQuery } from '../../../data/accounts/me';
import { serverUrl, type Session } from '../../../data/sessions/sessions';
import { DeviceTags } from './DeviceTags';
import { ComingStop, IdleCountdown } from './IdleCountdown';
import { OpenSession } from '../OpenSession';
import { Owner } from './Owner';
import { SessionStatus } from '../SessionStatus';
import { UsageTrend } from './UsageTrend';

const PLAIN_SLOTS = ['cpu', 'mem'];

/** The session's devices with their shares; before the allocation, the requested accelerators. */
export function Accelerators({ session }: { session: Session }) {
  if (session.devices.length > 0) {
    return <DeviceTags session={session} />;
  }
  const slots = Object.entries(session.requested).filter(([slot]) => !PLAIN_SLOTS.includes(slot));
  return slots.length > 0 ? <SlotTags slots={Object.fromEntries(slots)} /> : '–';
}

export const amountOf = (session: Session, slot: string) =>
  shortAmount(slot, session.requested[slot] ?? '–');

/** The columns of the list. By default, only administrators and monitors see owner and agent. */
export function useSessionColumns(): ListColumn<Session>[] {
  const { t, i18n } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const seesOthers = me !== undefined && me.role !== 'user';
  const hasCountdowns = Grid.useBreakpoint().lg === true;
  // A new array of columns would render all rows of the table again.
  return useMemo(
    () => sessionColumns(t, i18n.language, seesOthers, hasCountdowns),
    [t, i18n.language, seesOthers, hasCountdowns]
  );
}

function sessionColumns(
  t: TFunction,
  language: string,
  seesOthers: boolean,
  hasCountdowns: boolean
): ListColumn<Session>[] {
  const time = (text: string | null) => text && formatTime(text, language);
  return [
    {
      key: 'name',
      title: t('sessions.name'),
      sorter: true,
      render: (_, session) => (
        <Link
          className="bai-session-name"
          from="/sessions"
          to="."
          search={old => ({ ...old, session: session.id })}
        >
          {session.name}
        </Link>
      )
    },
    {
      key: 'status',
      title: t('sessions.status'),
      sorter: true,
      render: (_, session) => (
        <>
          <SessionStatus session={session} />
          {!hasCountdowns && <ComingStop session={session} />}
        </>
      )
    },
    {
      key: 'type',
      title: t('sessions.type'),
      sorter: true,
      responsive: ['md'],
      render: (_, session) => <Tag>{t(`types.${session.type}`)}</Tag>
    },
    {
      key: 'devices',
      title: t('sessions.accelerators'),
      responsive: ['md'],
      render: (_, session) => <Accelerators session={session} />
    },
    {
      key: 'cpu',
      title: t('sessions.cpu'),
      responsive: ['sm'],
      render: (_, session) => amountOf(session, 'cpu')
    },
    {
      key: 'mem',
      title: t('sessions.memory'),
      responsive: ['sm'],
      className: 'bai-nowrap',
      render: (_, session) => amountOf(session, 'mem')
    },
    {
      key: 'usage',
      title: t('sessions.usage'),
      responsive: ['lg'],
      render: (_, session) => <UsageTrend session={session.id} />
    },
    {
      key: 'elapsed',
      title: t('sessions.elapsed'),
      responsive: ['sm'],
      render: (_, session) => <Elapsed session={session} />
    },
    {
      key: 'idle',
      title: t('sessions.idle'),
      responsive: ['lg'],
      render: (_, session) => <IdleCountdown session={session} />
    },
    {
      key: 'owner',
      title: t('sessions.owner'),
      isOptional: !seesOthers,
      render: (_, { owner }) => <Owner name={owner} />
    },
    { key: 'agent', title: t('sessions.agent'), dataIndex: 'agent', isOptional: !seesOthers },
    {
      key: 'project',
      title: t('sessions.project'),
      dataIndex: 'project',
      sorter: true,
      isOptional: true
    },
    {
      key: 'resource_group',
      title: t('sessions.group'),
      dataIndex: 'resource_group',
      sorter: true,
      isOptional: true
    },
    {
      key: 'image',
      title: t('sessions.image'),
      dataIndex: 'image',
      sorter: true,
      isOptional: true
    },
    {
      key: 'cluster',
      title: t('sessions.cluster'),
      isOptional: true,
      render: (_, { cluster_size: count, cluster_mode: mode }) =>
        `${t(`sessions.mode-${mode}`, mode)}${count > 1 ? ` × ${count}` : ''}`
    },
    {
      key: 'dependencies',
      title: t('sessions.dependencies'),
      isOptional: true,
      render: (_, session) => session.dependencies.map(({ name }) => name).join(', ')
    },
    {
      key: 'result',
      title: t('sessions.result'),
      sorter: true,
      isOptional: true,
      render: (_, { result }) => t(`sessions.result-${result}`, result)
    },
    {
      key: 'priority',
      title: t('sessions.priority'),
      dataIndex: 'priority',
      sorter: true,
      isOptional: true
    },
    {
      key: 'created_at',
      title: t('sessions.created'),
      sorter: true,
      isOptional: true,
      render: (_, session) => time(session.created_at)
    },
    {
      key: 'terminated_at',
      title: t('sessions.terminated'),
      sorter: true,
      isOptional: true,
      render: (_, session) => time(session.terminated_at)
    },
    {
      key: 'open',
      title: '',
      render: (_, session) => serverUrl(session) && <OpenSession session={session} size="small" />
    }
  ];
}
