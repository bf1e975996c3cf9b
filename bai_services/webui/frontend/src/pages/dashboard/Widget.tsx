import type { ReactNode } from 'react';
import { ReloadOutlined } from '@ant-design/icons';
import { Button, Card, Flex, Skeleton } from 'antd';
import type { UseQueryResult } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';

interface WidgetProps<T> {
  title: string;
  query: UseQueryResult<T>;
  extra?: ReactNode;
  children: (data: T) => ReactNode;
}

/** A card with the result of one query; an error of the query is shown in the card. */
export function Widget<T>({ title, query, extra, children }: WidgetProps<T>) {
  const { t } = useTranslation();
  const refresh = () => void query.refetch();
  return (
    <Card
      title={<h2 className="bai-card-title">{title}</h2>}
      role="region"
      aria-label={title}
      extra={
        <Flex gap="small" align="center">
          {extra}
          <Button
            type="text"
            icon={<ReloadOutlined spin={query.isFetching} />}
            onClick={refresh}
            aria-label={t('dashboard.refresh', { title })}
          />
        </Flex>
      }
    >
      {query.error && <ErrorNotice error={query.error} onRetry={refresh} />}
      {query.data !== undefined && !query.error && children(query.data)}
      {query.isPending && <Skeleton active />}
    </Card>
  );
}
