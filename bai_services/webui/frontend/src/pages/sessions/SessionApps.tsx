import { Alert, Button, Skeleton, Table, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { ScrollArea } from '../../components/ScrollArea';
import { appAddress, appsQuery, type SessionApp } from '../../data/apps';
import { meQuery } from '../../data/me';
import type { Session } from '../../data/sessions';

/** The apps of an interactive session, each with a link for the session's owner. */
export function SessionApps({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { data, error, refetch } = useQuery(appsQuery(session.id));
  if (error) return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  if (!data || !me) return <Skeleton active />;
  const isOwner = session.owner === me.username;
  const isRunning = session.status === 'RUNNING';
  return (
    <>
      {!isOwner && <Alert type="info" showIcon title={t('apps.owner-only')} />}
      {isOwner && !isRunning && <Alert type="info" showIcon title={t('apps.not-running')} />}
      <ScrollArea label={t('sessions.apps')}>
        <Table<SessionApp>
          rowKey="name"
          size="small"
          pagination={false}
          dataSource={data.items}
          columns={[
            { key: 'title', title: t('apps.app'), render: (_, app) => app.title },
            {
              key: 'category',
              title: t('apps.category'),
              render: (_, { category }) => t(`apps.category-${category}`)
            },
            { key: 'start', title: t('apps.start'), render: (_, { kind }) => t(`apps.${kind}`) },
            {
              key: 'open',
              title: '',
              align: 'end',
              render: (_, app) => isOwner && isRunning && <OpenApp session={session} app={app} />
            }
          ]}
        />
      </ScrollArea>
    </>
  );
}

function OpenApp({ session, app }: { session: Session; app: SessionApp }) {
  const { t } = useTranslation();
  if (app.kind === 'tcp') {
    return <Typography.Text type="secondary">{t('apps.command-line')}</Typography.Text>;
  }
  return (
    <Button
      size="small"
      href={appAddress(session, app)}
      target="_blank"
      rel="noopener"
      aria-label={t('apps.open', { title: app.title })}
    >
      {t('sessions.open')}
    </Button>
  );
}
