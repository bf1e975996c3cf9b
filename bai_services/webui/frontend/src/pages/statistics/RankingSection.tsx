import { Flex, Progress, Select, Skeleton, Typography, type TableColumnsType } from 'antd';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';

interface RankingSectionProps<Row, G extends string> {
  title: string;
  by: G;
  groups: readonly { value: G; label: string }[];
  onBy: (by: G) => void;
  /** The rows, with the total number of groups; undefined while they are loaded. */
  data: { rows: readonly Row[]; groups: number } | undefined;
  error: Error | null;
  onRetry: () => void;
  empty: string;
  columns: TableColumnsType<Row>;
}

/** A table of the largest groups, with a menu that selects the kind of group. */
export function RankingSection<Row extends { key: string }, G extends string>({
  title,
  by,
  groups,
  onBy,
  data,
  error,
  onRetry,
  empty,
  columns
}: RankingSectionProps<Row, G>) {
  const { t } = useTranslation();
  const count = new Set(data?.rows.map(row => row.key)).size;
  return (
    <section aria-label={title} style={{ marginBottom: 24 }}>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 8 }}>
        <Typography.Title level={2} style={{ fontSize: 16, margin: 0 }}>
          {title}
        </Typography.Title>
        <Select
          value={by}
          onChange={onBy}
          aria-label={t('statistics.by')}
          options={[...groups]}
          style={{ minWidth: 150 }}
        />
      </Flex>
      {error && <ErrorNotice error={error} onRetry={onRetry} />}
      {!data && !error && <Skeleton active />}
      {data && (
        <ScrollArea label={title}>
          <CardTable<Row>
            size="small"
            rowKey="key"
            dataSource={[...data.rows]}
            pagination={false}
            locale={{ emptyText: empty }}
            columns={columns}
          />
        </ScrollArea>
      )}
      {data && count < data.groups && (
        <Typography.Paragraph type="secondary">
          {t('statistics.largest', { count, total: data.groups })}
        </Typography.Paragraph>
      )}
    </section>
  );
}

/** A column with a number as text, and a bar that compares it with those of the other rows. */
export function barColumn<Row>(
  title: string,
  rows: readonly Row[],
  value: (row: Row) => number,
  text: (value: number) => string
) {
  const most = Math.max(0, ...rows.map(value));
  return {
    title,
    render: (_: unknown, row: Row) => (
      <Flex gap="small" align="center">
        <Progress
          percent={most ? (100 * value(row)) / most : 0}
          showInfo={false}
          // At 100 %, the default status would show the bar as a success.
          status="normal"
          aria-hidden
          style={{ width: 80 }}
        />
        {text(value(row))}
      </Flex>
    )
  };
}
