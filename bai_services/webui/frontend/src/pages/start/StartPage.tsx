import { Button, Card, Flex, Skeleton, Steps, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Elapsed } from '../../components/Elapsed';
import { ErrorNotice } from '../../components/ErrorNotice';
import { StatusTag } from '../../components/StatusTag';
import { foldersQuery } from '../../data/folders';
import { meQuery } from '../../data/me';
import { sessionsQuery } from '../../data/sessions';
import { Invitations } from '../data/Invitations';

const RECENT = 5;

/** Landing page: invitations, first steps of new users, recent sessions, and limits. */
export function StartPage() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const recent = useQuery(
    sessionsQuery({ limit: RECENT, offset: 0, sort: '-created_at', filters: {} })
  );
  const folders = useQuery(foldersQuery({ limit: 1, offset: 0, sort: 'name', filters: {} }));
  const isNew = recent.data?.total === 0;
  return (
    <>
      <Typography.Title level={3}>
        {me ? t('start.welcome', { name: me.full_name || me.username }) : t('pages.start')}
      </Typography.Title>
      <Invitations />
      {isNew && <FirstSteps hasFolder={(folders.data?.total ?? 0) > 0} />}
      <div className="bai-cards">
        <Card title={t('start.begin')}>
          <Flex vertical gap="small">
            <Link to="/launch">
              <Button type="primary" size="large" block>
                {t('start.interactive')}
              </Button>
            </Link>
            <Link to="/data">
              <Button block>{t('start.folders')}</Button>
            </Link>
          </Flex>
        </Card>
        <Card
          title={t('start.recent')}
          extra={<Link to="/sessions">{t('start.all-sessions')}</Link>}
        >
          {recent.error && (
            <ErrorNotice error={recent.error} onRetry={() => void recent.refetch()} />
          )}
          {!recent.data && !recent.error && <Skeleton active />}
          {isNew && t('sessions.none')}
          <Flex vertical gap="small">
            {recent.data?.items.map(session => (
              <Flex key={session.id} align="center" gap="small">
                <Link
                  to="/sessions"
                  search={{ tab: 'all', session: session.id }}
                  style={{ flex: 1, overflow: 'hidden', textOverflow: 'ellipsis' }}
                >
                  {session.name}
                </Link>
                <Elapsed session={session} />
                <StatusTag status={session.status} />
              </Flex>
            ))}
          </Flex>
        </Card>
        {me && <Limits limits={me.limits} usage={me.usage} />}
      </div>
    </>
  );
}

function FirstSteps({ hasFolder }: { hasFolder: boolean }) {
  const { t } = useTranslation();
  return (
    <Card title={t('start.first-steps')} style={{ marginBottom: 16 }}>
      <Steps
        current={hasFolder ? 1 : 0}
        responsive
        items={[
          { title: t('start.step-folder'), content: t('start.step-folder-help') },
          { title: t('start.step-session'), content: t('start.step-session-help') },
          { title: t('start.step-open'), content: t('start.step-open-help') }
        ]}
      />
    </Card>
  );
}

/** Usage and limit of each limited resource, as formatted by the API. */
function Limits(props: { limits: Record<string, string>; usage: Record<string, string> }) {
  const { t } = useTranslation();
  const slots = Object.entries(props.limits);
  if (slots.length === 0) {
    return null;
  }
  return (
    <Card title={t('start.limits')}>
      {slots.map(([slot, limit]) => (
        <div key={slot}>
          <Flex justify="space-between">
            <span>{slot}</span>
            <span>{t('start.used', { used: props.usage[slot] ?? '0', limit })}</span>
          </Flex>
        </div>
      ))}
    </Card>
  );
}
