import type { ReactNode } from 'react';
import { QuestionCircleOutlined, ReloadOutlined } from '@ant-design/icons';
import { Button, Skeleton, Tooltip } from 'antd';
import type { UseQueryResult } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { BoardCard } from '../../components/board/BoardCard';
import type { Dashboard } from '../../data/dashboard';

export type DashboardResult = UseQueryResult<Dashboard>;

interface WidgetProps {
  title: string;
  /** What the widget shows, as a tooltip. */
  help: string;
  query: DashboardResult;
  extra?: ReactNode;
  children: (data: Dashboard) => ReactNode;
}

/** A card with a part of the dashboard. */
export function Widget({ title, help, query, extra, children }: WidgetProps) {
  const { t } = useTranslation();
  const refresh = () => void query.refetch();
  return (
    <BoardCard
      title={title}
      extra={
        <>
          {extra}
          <Tooltip title={help} trigger={['hover', 'focus', 'click']}>
            <Button
              type="text"
              icon={<QuestionCircleOutlined />}
              aria-label={t('dashboard.help', { title })}
            />
          </Tooltip>
          <Button
            type="text"
            icon={<ReloadOutlined spin={query.isFetching} />}
            onClick={refresh}
            aria-label={t('dashboard.refresh', { title })}
          />
        </>
      }
    >
      {query.data !== undefined && children(query.data)}
      {query.isPending && <Skeleton active />}
    </BoardCard>
  );
}
