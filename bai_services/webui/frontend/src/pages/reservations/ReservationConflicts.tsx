import { Alert, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import { ErrorNotice } from '../../components/ErrorNotice';
import { personal } from '../../components/personal';
import { formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import type { Schemas } from '../../data/client';
import { conflictsQuery } from '../../data/scheduling/reservations';

type Conflict = Schemas['ConflictingSession'];

/** The running sessions that can delay a reservation, what that means, and what can be done. */
export function ReservationConflicts({ id, isAdmin }: { id: string; isAdmin: boolean }) {
  const { t, i18n } = useTranslation();
  const { data, error, isPending, refetch } = useQuery(conflictsQuery(id));
  return (
    <section aria-label={t('reservations.conflicts')} style={{ marginTop: 24 }}>
      <Typography.Title level={5}>{t('reservations.conflicts')}</Typography.Title>
      {isPending && <Skeleton active paragraph={{ rows: 2 }} title={false} />}
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {data?.is_complete === false && (
        <Alert showIcon type="warning" title={t('reservations.conflicts-incomplete')} />
      )}
      {data?.is_complete && data.count === 0 && t('reservations.conflicts-none')}
      {data !== undefined && data.count > 0 && (
        <>
          <Alert
            showIcon
            type="warning"
            style={{ marginBottom: 8 }}
            title={t('reservations.conflicts-help', { count: data.count })}
            description={
              <>
                <div>{t('reservations.conflicts-effect')}</div>
                <div>{t(`reservations.conflicts-${isAdmin ? 'admin' : 'member'}`)}</div>
              </>
            }
          />
          <CardTable<Conflict>
            size="small"
            pagination={false}
            rowKey={({ session, ...others }) => session?.id ?? JSON.stringify(others)}
            dataSource={data.sessions}
            columns={[
              {
                key: 'session',
                title: t('reservations.delayed-session'),
                render: (_, { session }) =>
                  session ? <UserText text={session.name} /> : t('reservations.conflict-hidden')
              },
              {
                key: 'owner',
                title: t('reservations.delayed-owner'),
                render: (_, { session }) => personal(session?.owner ?? '')
              },
              {
                key: 'agents',
                title: t('reservations.agents'),
                render: (_, { agents }) => <UserText text={agents.join(', ')} />
              },
              {
                key: 'ends_at',
                title: t('reservations.conflict-ends'),
                render: (_, { ends_at: at }) =>
                  at === null ? t('reservations.conflict-no-limit') : formatTime(at, i18n.language)
              }
            ]}
          />
        </>
      )}
    </section>
  );
}
