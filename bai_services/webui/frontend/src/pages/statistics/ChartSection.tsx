import type { ReactNode } from 'react';
import { Empty, Skeleton, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';

interface ChartSectionProps {
  title: string;
  note?: string;
  query: { data: unknown; error: Error | null; refetch: () => unknown };
  isEmpty: boolean;
  emptyText?: string;
  children: ReactNode;
}

/** A chart with its title, or the state of its query. */
export function ChartSection(props: ChartSectionProps) {
  const { t } = useTranslation();
  const { title, note, query, isEmpty, emptyText = t('usage.none'), children } = props;
  const { data, error, refetch } = query;
  return (
    <section aria-label={title} style={{ marginBottom: 24 }}>
      <Typography.Title level={2} style={{ fontSize: 16 }}>
        {title}
      </Typography.Title>
      {note && <Typography.Paragraph type="secondary">{note}</Typography.Paragraph>}
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {data === undefined && !error && <Skeleton active />}
      {data !== undefined &&
        (isEmpty ? (
          <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={emptyText} />
        ) : (
          children
        ))}
    </section>
  );
}
