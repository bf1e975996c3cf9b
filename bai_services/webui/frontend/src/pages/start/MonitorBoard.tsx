import { Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { Board } from '../../components/board/Board';
import { BoardCard } from '../../components/board/BoardCard';
import { storedLayout } from '../../components/board/layout';
import { ErrorNotice } from '../../components/ErrorNotice';
import { dashboardQuery } from '../../data/dashboard';
import { AgentStatistics } from '../dashboard/AgentWidgets';
import { RecentSessions } from '../dashboard/RecentSessions';
import { SessionCounts } from '../dashboard/SessionWidgets';

const layout = storedLayout('start-monitor');
const PAGES = ['scheduler', 'agents', 'statistics', 'audit'] as const;

/** State of the hub for users who may see everything and change nothing. */
export function MonitorBoard() {
  const { t } = useTranslation();
  const query = useQuery(dashboardQuery({}));
  return (
    <>
      {query.error && <ErrorNotice error={query.error} onRetry={() => void query.refetch()} />}
      <Board
        layout={layout}
        cards={[
          { key: 'sessions', content: <SessionCounts query={query} owner={undefined} /> },
          { key: 'agents', content: <AgentStatistics query={query} /> },
          { key: 'recent', span: 2, content: <RecentSessions query={query} /> },
          {
            key: 'pages',
            content: (
              <BoardCard title={t('start.monitoring')}>
                <p>{t('start.read-only')}</p>
                <Flex vertical gap="small">
                  {PAGES.map(page => (
                    <span key={page}>
                      <Link to={`/${page}`}>{t(`pages.${page}`)}</Link>: {t(`start.about-${page}`)}
                    </span>
                  ))}
                </Flex>
              </BoardCard>
            )
          }
        ]}
      />
    </>
  );
}
