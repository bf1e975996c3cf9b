import { Alert, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import { ErrorNotice } from '../../components/ErrorNotice';
import { personal } from '../../components/personal';
import { formatDuration, formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import type { Schemas } from '../../data/client';
import { delaysQuery } from '../../data/scheduling/reservations';

type Delayed = Schemas['DelayedSession'];

const secondsBetween = (from: string, to: string) => (Date.parse(to) - Date.parse(from)) / 1000;

/** The pending sessions that start later if a reservation is approved, and by how much. */
export function ReservationDelays({ id }: { id: string }) {
  const { t, i18n } = useTranslation();
  const { data, error, isPending, refetch } = useQuery(delaysQuery(id));
  const start = ({ delayed_until: until, starts_at: at }: Delayed) =>
    until === null
      ? t('reservations.delay-unknown')
      : t('reservations.delay', {
          at: formatTime(until, i18n.language),
          span: formatDuration(secondsBetween(at, until), i18n.language)
        });
  return (
    <section aria-label={t('reservations.delays')} style={{ marginTop: 24 }}>
      <Typography.Title level={5}>{t('reservations.delays')}</Typography.Title>
      {isPending && <Skeleton active paragraph={{ rows: 2 }} title={false} />}
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {data?.is_complete === false && (
        <Alert showIcon type="warning" title={t('reservations.delays-incomplete')} />
      )}
      {data?.is_complete && data.count === 0 && t('reservations.delays-none')}
      {data !== undefined && data.count > 0 && (
        <>
          <p>{t('reservations.delays-help', { count: data.count })}</p>
          <CardTable<Delayed>
            size="small"
            pagination={false}
            rowKey={({ session, ...times }) => session?.id ?? JSON.stringify(times)}
            dataSource={data.sessions}
            columns={[
              {
                key: 'session',
                title: t('reservations.delayed-session'),
                render: (_, { session }) =>
                  session ? <UserText text={session.name} /> : t('reservations.delayed-hidden')
              },
              {
                key: 'owner',
                title: t('reservations.delayed-owner'),
                render: (_, { session }) => personal(session?.owner ?? '')
              },
              {
                key: 'starts_at',
                title: t('reservations.delayed-from'),
                render: (_, { starts_at: at }) => formatTime(at, i18n.language)
              },
              {
                key: 'delayed_until',
                title: t('reservations.delayed-until'),
                render: (_, session) => start(session)
              }
            ]}
          />
        </>
      )}
    </section>
  );
}
