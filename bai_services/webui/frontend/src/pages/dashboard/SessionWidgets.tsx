import { Flex, Statistic } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { countText } from '../../components/list/listSearch';
import { formatTime } from '../../components/time';
import type { Session } from '../../data/sessions/sessions';
import { statusText } from '../../i18n/reasonText';
import type { SessionsSearch } from '../sessions/search';
import { UsageBar } from './UsageBar';
import { Widget, type DashboardResult } from './Widget';

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
  total: number;
}

function Count({ title, search, total }: CountProps) {
  return (
    <Link to="/sessions" search={search}>
      <Statistic title={title} value={countText(total)} />
    </Link>
  );
}

interface SessionCountsProps {
  query: DashboardResult;
  /** undefined: the sessions of all users. */
  owner: string | undefined;
}

/** Numbers of running sessions by type, of starting sessions and of pending sessions. */
export function SessionCounts({ query, owner }: SessionCountsProps) {
  const { t } = useTranslation();
  const filters = owner === undefined ? {} : { owner };
  return (
    <Widget
      title={t(owner === undefined ? 'dashboard.active-sessions' : 'dashboard.my-sessions')}
      help={t(owner === undefined ? 'dashboard.help-active' : 'dashboard.help-sessions')}
      query={query}
    >
      {({ counts }) => (
        <Flex wrap gap="large">
          {RUNNING_TYPES.map(type => (
            <Count
              key={type}
              title={t(`dashboard.${type}`)}
              search={{ tab: 'running', filters: { ...filters, type } }}
              total={counts[type]}
            />
          ))}
          <Count
            title={t('dashboard.starting')}
            search={{ tab: 'running', filters }}
            total={counts.starting}
          />
          <Count
            title={t('dashboard.pending')}
            search={{ tab: 'pending', filters }}
            total={counts.pending}
          />
        </Flex>
      )}
    </Widget>
  );
}

/** Position and estimated start of the user's newest pending sessions. */
export function MyQueue({ query }: { query: DashboardResult }) {
  const { t, i18n } = useTranslation();
  return (
    <Widget title={t('dashboard.queue')} help={t('dashboard.help-queue')} query={query}>
      {({ queued }) =>
        queued.length === 0
          ? t('dashboard.no-queue')
          : queued.map(session => {
              const start = session.estimated_start?.['starts_at'];
              return (
                <div key={session.id} style={{ marginBottom: 8 }}>
                  <Flex wrap gap="small">
                    <SessionLink session={session} />
                    {session.queue_position !== null && (
                      <span>
                        {t('why.position', {
                          position: session.queue_position,
                          group: session.resource_group
                        })}
                      </span>
                    )}
                  </Flex>
                  <div>{statusText(i18n, session)}</div>
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
export function MyDevices({ query }: { query: DashboardResult }) {
  const { t } = useTranslation();
  return (
    <Widget title={t('dashboard.devices')} help={t('dashboard.help-devices')} query={query}>
      {({ running }) => {
        const devices = running.flatMap(session =>
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
