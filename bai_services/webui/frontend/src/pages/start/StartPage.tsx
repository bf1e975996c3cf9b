import { useState, type ReactNode } from 'react';
import { Button, Card, Flex, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Board } from '../../components/board/Board';
import { CardMenu } from '../../components/board/CardMenu';
import { storedLayout } from '../../components/board/layout';
import { Elapsed } from '../../components/Elapsed';
import { ErrorNotice } from '../../components/ErrorNotice';
import { StatusTag } from '../../components/StatusTag';
import { meQuery } from '../../data/accounts/me';
import { sessionsQuery } from '../../data/sessions/sessions';
import { CreateFolder } from '../data/CreateFolder';
import { readLauncherSearch } from '../launcher/search';
import { OpenSession } from '../sessions/OpenSession';
import { Attention } from './Attention';
import { FirstSteps } from './FirstSteps';
import { QuickStart } from './QuickStart';
import { StartFromLink } from './StartFromLink';

const RECENT = 5;
const layout = storedLayout('start');
const TYPES = ['interactive', 'batch'] as const;

/** Landing page: invitations, first steps of new users, ways to start, and recent sessions. */
export function StartPage() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const [isCreatingFolder, setIsCreatingFolder] = useState(false);
  const recent = useQuery({
    ...sessionsQuery({
      limit: RECENT,
      offset: 0,
      sort: '-created_at',
      filters: { owner: me?.username ?? '' }
    }),
    enabled: me !== undefined
  });
  const cards = [
    {
      key: 'quick',
      content: (
        <StartCard title={t('start.quick')}>
          {recent.data ? <QuickStart last={recent.data.items[0]} /> : <Skeleton active />}
        </StartCard>
      )
    },
    ...TYPES.map(type => ({
      key: type,
      content: (
        <StartCard title={t(`start.${type}`)}>
          <p>{t(`start.${type}-help`)}</p>
          <Link to="/launch" search={readLauncherSearch({ request: { type } })}>
            <Button>{t(`start.${type}`)}</Button>
          </Link>
        </StartCard>
      )
    })),
    {
      key: 'folder',
      content: (
        <StartCard title={t('start.folder')}>
          <p>{t('start.folder-help')}</p>
          <Flex wrap gap="small">
            <Button onClick={() => setIsCreatingFolder(true)}>{t('start.folder')}</Button>
            <Link to="/data">
              <Button type="link">{t('start.folders')}</Button>
            </Link>
          </Flex>
        </StartCard>
      )
    },
    {
      key: 'link',
      content: (
        <StartCard title={t('start.link')}>
          <StartFromLink />
        </StartCard>
      )
    },
    {
      key: 'recent',
      content: (
        <StartCard
          title={t('start.recent')}
          extra={<Link to="/sessions">{t('start.all-sessions')}</Link>}
        >
          {recent.error && (
            <ErrorNotice error={recent.error} onRetry={() => void recent.refetch()} />
          )}
          {recent.isPending && <Skeleton active />}
          {recent.data?.total === 0 && t('sessions.none')}
          <Flex vertical gap="small">
            {recent.data?.items.map(session => (
              <Flex key={session.id} align="center" gap="small">
                <Link to="/sessions" search={{ session: session.id }} className="bai-cut">
                  {session.name}
                </Link>
                <Elapsed session={session} />
                <StatusTag status={session.status} />
                <OpenSession session={session} size="small" />
              </Flex>
            ))}
          </Flex>
        </StartCard>
      )
    }
  ];
  return (
    <>
      <Typography.Title level={3}>
        {me ? t('start.welcome', { name: me.full_name || me.username }) : t('pages.start')}
      </Typography.Title>
      <Attention />
      {recent.data && (
        <FirstSteps sessions={recent.data} onCreateFolder={() => setIsCreatingFolder(true)} />
      )}
      <Board layout={layout} cards={cards} />
      <CreateFolder isOpen={isCreatingFolder} onClose={() => setIsCreatingFolder(false)} />
    </>
  );
}

interface StartCardProps {
  title: string;
  extra?: ReactNode;
  children: ReactNode;
}

function StartCard({ title, extra, children }: StartCardProps) {
  return (
    <Card
      title={<h2 className="bai-card-title">{title}</h2>}
      role="region"
      aria-label={title}
      extra={
        <Flex gap={4} align="center">
          {extra}
          <CardMenu title={title} />
        </Flex>
      }
    >
      {children}
    </Card>
  );
}
