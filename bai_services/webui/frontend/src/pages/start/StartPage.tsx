import { lazy, Suspense, useState } from 'react';
import { Button, Flex, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { personal } from '../../components/personal';
import { Board } from '../../components/board/Board';
import { BoardCard } from '../../components/board/BoardCard';
import { storedLayout } from '../../components/board/layout';
import { Elapsed } from '../../components/Elapsed';
import { ErrorNotice } from '../../components/ErrorNotice';
import { LazyDialog } from '../../components/LazyDialog';
import { NoProject } from '../../components/NoProject';
import { PageTitle } from '../../components/PageTitle';
import { SessionTag } from '../../components/StatusTag';
import { config } from '../../config';
import { isReadOnly, meQuery, useHasNoProject } from '../../data/accounts/me';
import { loadScript } from '../../data/scripts';
import { sessionsQuery } from '../../data/sessions/sessions';
import { readLauncherSearch } from '../launcher/search';
import { OpenSession } from '../sessions/OpenSession';
import { Attention } from './Attention';
import { FirstSteps } from './FirstSteps';
import { QuickStart } from './QuickStart';
import { StartFromLink } from './StartFromLink';

const CreateFolder = lazy(() =>
  loadScript(() => import('../data/CreateFolder')).then(module => ({
    default: module.CreateFolder
  }))
);
const MonitorBoard = lazy(() =>
  loadScript(() => import('./MonitorBoard')).then(module => ({ default: module.MonitorBoard }))
);
const RECENT = 5;
const layout = storedLayout('start');
/** The cards that start sessions. */
const STARTERS: readonly string[] = ['quick', 'interactive', 'batch', 'link'];
const TYPES = ['interactive', 'batch'] as const;

/**
 * Landing page: warnings, guide for new users, ways to start a session, and recent sessions.
 * Monitors see the state of the hub instead, because they start no sessions.
 */
export function StartPage() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const [isCreatingFolder, setIsCreatingFolder] = useState(false);
  const recent = useQuery({
    ...sessionsQuery({
      limit: RECENT,
      offset: 0,
      sort: '-created_at',
      filters: { owner: config.username }
    }),
    enabled: !isReadOnly(me?.role)
  });
  const cards = [
    {
      key: 'quick',
      content: (
        <BoardCard title={t('start.quick')}>
          {recent.data ? <QuickStart last={recent.data.items[0]} /> : <Skeleton active />}
        </BoardCard>
      )
    },
    ...TYPES.map(type => ({
      key: type,
      content: (
        <BoardCard title={t(`start.${type}`)}>
          <p>{t(`start.${type}-help`)}</p>
          <Link to="/launch" search={readLauncherSearch({ request: { type } })}>
            <Button>{t(`start.${type}`)}</Button>
          </Link>
        </BoardCard>
      )
    })),
    {
      key: 'folder',
      content: (
        <BoardCard title={t('start.folder')}>
          <p>{t('start.folder-help')}</p>
          <Flex wrap gap="small">
            <Button onClick={() => setIsCreatingFolder(true)}>{t('start.folder')}</Button>
            <Link to="/data">
              <Button type="link">{t('start.folders')}</Button>
            </Link>
          </Flex>
        </BoardCard>
      )
    },
    {
      key: 'link',
      content: (
        <BoardCard title={t('start.link')}>
          <StartFromLink />
        </BoardCard>
      )
    },
    {
      key: 'recent',
      content: (
        <BoardCard
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
                <SessionTag session={session} />
                <OpenSession session={session} size="small" />
              </Flex>
            ))}
          </Flex>
        </BoardCard>
      )
    }
  ];
  const mayOnlyRead = isReadOnly(me?.role);
  const hasNoProject = useHasNoProject();
  const isShown = (key: string) => !(hasNoProject && STARTERS.includes(key));
  return (
    <>
      <PageTitle>
        {me
          ? t('start.welcome', { name: personal(me.full_name || me.username) })
          : t('pages.start')}
      </PageTitle>
      <Attention />
      {hasNoProject && !mayOnlyRead && (
        <div style={{ marginBottom: 16 }}>
          <NoProject />
        </div>
      )}
      {recent.data && !mayOnlyRead && !hasNoProject && (
        <FirstSteps sessions={recent.data} onCreateFolder={() => setIsCreatingFolder(true)} />
      )}
      {mayOnlyRead ? (
        <Suspense fallback={<Skeleton active />}>
          <MonitorBoard />
        </Suspense>
      ) : (
        <Board layout={layout} cards={cards.filter(({ key }) => isShown(key))} />
      )}
      <LazyDialog isOpen={isCreatingFolder}>
        <CreateFolder isOpen={isCreatingFolder} onClose={() => setIsCreatingFolder(false)} />
      </LazyDialog>
    </>
  );
}
