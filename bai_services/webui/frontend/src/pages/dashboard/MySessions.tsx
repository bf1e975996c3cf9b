import { Flex, Statistic } from 'antd';
import { useQueries, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { countText } from '../../components/list/listSearch';
import { formatTime } from '../../components/time';
import { STATUS_GROUPS, sessionsQuery, type Session } from '../../data/sessions/sessions';
import type { SessionsSearch } from '../sessions/search';
import { UsageBar } from './UsageBar';
import { Widget, WIDGET_REFRESH_MILLIS } from './Widget';

const STARTING = STATUS_GROUPS.running.filter(
  status => status !== 'RUNNING' && status !== 'TERMINATING'
);
const MAX_QUEUED = 5;
const MAX_WITH_DEVICES = 20;

/** Query for the sessions of a user, or of all users that the caller may see. */
const listOf = (owner: string | undefined, limit: number, filters: Record<string, string>) => ({
  ...sessionsQuery({
    limit,
    offset: 0,
    sort: '-created_at',
    filters: { ...(owner === undefined ? {} : { owner }), ...filters }
  }),
  refetchInterval: WIDGET_REFRESH_MILLIS
});

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

const RUNNING_TYPES = ['interactive', 'batch'] as const;

interface CountProps {
  title: string;
  search: SessionsSearch;
  total: number | undefined;
}

function Count({ title, search, total }: CountProps) {
  return (
    total !== undefined && (
      <Link to="/sessions" search={search}>
        <Statistic title={title} value={countText(total)} />
      </Link>
    )
  );
}

/**
 * Numbers of running sessions by type, of starting sessions and of pending sessions. Without an
 * owner, the sessions of all users are counted.
 */
export function SessionCounts({ owner }: { owner: string | undefined }) {
  const { t } = useTranslation();
  const running = useQueries({
    queries: RUNNING_TYPES.map(type => listOf(owner, 1, { status: 'RUNNING', type }))
  });
  const starting = useQuery(listOf(owner, 1, { status__in: STARTING.join(',') }));
  const pending = useQuery(listOf(owner, 1, { status__in: STATUS_GROUPS.pending.join(',') }));
  const filters = owner === undefined ? {} : { owner };
  return (
    <Widget
      title={t(owner === undefined ? 'dashboard.active-sessions' : 'dashboard.my-sessions')}
      help={t(owner === undefined ? 'dashboard.help-active' : 'dashboard.help-sessions')}
      query={pending}
    >
      {({ total }) => (
        <Flex wrap gap="large">
          {RUNNING_TYPES.map((type, index) => (
            <Count
              key={type}
              title={t(`dashboard.${type}`)}
              search={{ tab: 'running', filters: { ...filters, type } }}
              total={running[index]?.data?.total}
            />
          ))}
          <Count
            title={t('dashboard.starting')}
            search={{ tab: 'running', filters }}
            total={starting.data?.total}
          />
          <Count
            title={t('dashboard.pending')}
            search={{ tab: 'pending', filters }}
            total={total}
          />
        </Flex>
      )}
    </Widget>
  );
}

/** Position and estimated start of the user's newest pending sessions. */
export function MyQueue({ owner }: { owner: string }) {
  const { t, i18n } = useTranslation();
  const pending = useQuery(listOf(owner, MAX_QUEUED, { status: 'PENDING' }));
  return (
    <Widget title={t('dashboard.queue')} help={t('dashboard.help-queue')} query={pending}>
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

/** Utilization of each accelerator of the user's newest running sessions. */
export function MyDevices({ owner }: { owner: string }) {
  const { t } = useTranslation();
  const running = useQuery(listOf(owner, MAX_WITH_DEVICES, { status: 'RUNNING' }));
  return (
    <Widget title={t('dashboard.devices')} help={t('dashboard.help-devices')} query={running}>
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
