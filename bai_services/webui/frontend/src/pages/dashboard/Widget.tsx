import type { ReactNode } from 'react';
import { QuestionCircleOutlined, ReloadOutlined } from '@ant-design/icons';
import { Button, Skeleton, Tooltip } from 'antd';
import type { UseQueryResult } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { BoardCard } from '../../components/board/BoardCard';
import { ErrorNotice } from '../../components/ErrorNotice';

/**
 * Interval at which widgets reload their data. A change of a session also reloads the data of
 * sessions.
 */
export const WIDGET_REFRESH_MILLIS = 15_000;

interface WidgetProps<T> {
  title: string;
  /** What the widget shows, as a tooltip. */
  help: string;
  query: UseQueryResult<T>;
  extra?: ReactNode;
  children: (data: T) => ReactNode;
}

/** A card with the result of one query; an error of the query is shown in the card. */
export function Widget<T>({ title, help, query, extra, children }: WidgetProps<T>) {
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
      {query.error && <ErrorNotice error={query.error} onRetry={refresh} />}
      {query.data !== undefined && !query.error && children(query.data)}
      {query.isPending && <Skeleton active />}
    </BoardCard>
  );
}
