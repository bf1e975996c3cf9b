import { Flex, Statistic } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Elapsed } from '../../components/Elapsed';
import { StatusTag } from '../../components/StatusTag';
import { formatTime } from '../../components/time';
import { STATUS_GROUPS, sessionsQuery, type Session } from '../../data/sessions';
import { UsageBar } from './UsageBar';
import { Widget } from './Widget';

const RECENT = 5;
const MAX_QUEUED = 5;
const MAX_WITH_DEVICES = 20;
const UTILIZATION_INTERVAL_MILLIS = 30_000;
const ACTIVE = [...STATUS_GROUPS.pending, ...STATUS_GROUPS.running].join(',');

/** A list of the user's own sessions that have one of the given statuses. */
const own = (owner: string, limit: number, filters: Record<string, string>) =>
  sessionsQuery({ limit, offset: 0, sort: '-created_at', filters: { owner, ...filters } });

function SessionLink({ session }: { session: Session }) {
  return (
    <Link
      to="/sessions"
      search={{ session: session.id }}
      style={{ flex: 1, overflow: 'hidden', textOverflow: 'ellipsis' }}
    >
      {session.name}
    </Link>
  );
}

function Count({
  title,
  tab,
  total
}: {
  title: string;
  tab: 'running' | 'pending';
  total: number;
}) {
  return (
    <Link to="/sessions" search={{ tab }}>
      <Statistic title={title} value={total} />
    </Link>
  );
}

/** Numbers of running and pending sessions, and the latest sessions. */
export function MySessions({ owner }: { owner: string }) {
  const { t } = useTranslation();
  const running = { status: 'RUNNING' };
  const interactive = useQuery(own(owner, 1, { ...running, type: 'interactive' }));
  const batch = useQuery(own(owner, 1, { ...running, type: 'batch' }));
  const pending = useQuery(own(owner, 1, { status__in: STATUS_GROUPS.pending.join(',') }));
  const latest = useQuery(own(owner, RECENT, { status__in: ACTIVE }));
  return (
    <Widget title={t('dashboard.my-sessions')} query={latest}>
      {({ items }) => (
        <>
          <Flex wrap gap="large" style={{ marginBottom: 12 }}>
            {interactive.data && (
              <Count
                title={t('dashboard.interactive')}
                tab="running"
                total={interactive.data.total}
              />
            )}
            {batch.data && (
              <Count title={t('dashboard.batch')} tab="running" total={batch.data.total} />
            )}
            {pending.data && (
              <Count title={t('dashboard.pending')} tab="pending" total={pending.data.total} />
            )}
          </Flex>
          {items.length === 0 && t('dashboard.no-sessions')}
          {items.map(session => (
            <Flex key={session.id} align="center" gap="small">
              <SessionLink session={session} />
              <Elapsed session={session} />
              <StatusTag status={session.status} />
            </Flex>
          ))}
        </>
      )}
    </Widget>
  );
}

/** Position and estimated start of the user's pending sessions. */
export function MyQueue({ owner }: { owner: string }) {
  const { t, i18n } = useTranslation();
  const pending = useQuery(own(owner, MAX_QUEUED, { status: 'PENDING' }));
  return (
    <Widget title={t('dashboard.queue')} query={pending}>
      {({ items }) =>
        items.length === 0
          ? t('dashboard.no-queue')
          : items.map(session => {
              const start = session.estimated_start?.['starts_at'];
              return (
                <div key={session.id} style={{ marginBottom: 8 }}>
                  <Flex gap="small">
                    <SessionLink session={session} />
                    {session.queue_position !== null && (
                      <span>{t('dashboard.ahead', { count: session.queue_position - 1 })}</span>
                    )}
                  </Flex>
                  <div>{session.status_info}</div>
                  {start && (
                    <div>{t('dashboard.starts', { time: formatTime(start, i18n.language) })}</div>
                  )}
                </div>
              );
            })
      }
    </Widget>
  );
}

/** Utilization of each accelerator of the user's running sessions. */
export function MyDevices({ owner }: { owner: string }) {
  const { t } = useTranslation();
  const running = useQuery({
    ...own(owner, MAX_WITH_DEVICES, { status: 'RUNNING' }),
    refetchInterval: UTILIZATION_INTERVAL_MILLIS
  });
  return (
    <Widget title={t('dashboard.devices')} query={running}>
      {({ items }) => {
        const devices = items.flatMap(session =>
          session.devices.map(device => ({ session, device }))
        );
        return devices.length === 0
          ? t('dashboard.no-devices')
          : devices.map(({ session, device }) => (
              <UsageBar
                key={`${session.id} ${device.kernel} ${device.id}`}
                name={`${session.name} · ${device.model || device.id} · ${device.share}`}
                percent={device.utilization_percent}
                text={
                  device.utilization_percent === null
                    ? t('dashboard.not-reported')
                    : t('dashboard.percent', { percent: device.utilization_percent })
                }
              />
            ));
      }}
    </Widget>
  );
}
