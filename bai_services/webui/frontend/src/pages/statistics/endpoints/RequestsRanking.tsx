import { Flex, Progress, Select, Skeleton, Table, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { ScrollArea } from '../../../components/ScrollArea';
import { UserText } from '../../../components/UserText';
import {
  endpointReportQuery,
  type EndpointReportRequest,
  type EndpointUsageRow
} from '../../../data/usage/endpointReports';
import type { EndpointGroup } from '../search';
import { endpointTokenText } from './tokenText';

interface RequestsRankingProps {
  request: EndpointReportRequest;
  by: EndpointGroup;
  groups: readonly EndpointGroup[];
  onBy: (by: EndpointGroup) => void;
}

/** The groups with the most requests. */
export function RequestsRanking({ request, by, groups, onBy }: RequestsRankingProps) {
  const { t, i18n } = useTranslation();
  const { data, error, refetch } = useQuery(endpointReportQuery(request));
  const rows = data?.rows ?? [];
  const most = Math.max(0, ...rows.map(row => row.requests));
  const number = new Intl.NumberFormat(i18n.language);
  const title = t('endpoint-usage.ranking');
  const count = (key: 'input_tokens' | 'output_tokens', label: string) => ({
    title: label,
    align: 'right' as const,
    render: (_: unknown, row: EndpointUsageRow) => number.format(row[key])
  });
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
          options={groups.map(value => ({ value, label: t(`endpoint-usage.by-${value}`) }))}
          style={{ minWidth: 150 }}
        />
      </Flex>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Skeleton active />}
      {data && (
        <ScrollArea label={title}>
          <Table<EndpointUsageRow>
            size="small"
            rowKey="key"
            dataSource={rows}
            pagination={false}
            locale={{ emptyText: t('endpoint-usage.none') }}
            columns={[
              {
                title: t(`endpoint-usage.by-${by}`),
                render: (_, { name }) => (
                  <UserText text={data.by === 'token' ? endpointTokenText(name) : name || '–'} />
                )
              },
              {
                title: t('endpoint-usage.requests'),
                render: (_, row) => (
                  <Flex gap="small" align="center">
                    <Progress
                      percent={most ? (100 * row.requests) / most : 0}
                      showInfo={false}
                      aria-hidden
                      style={{ width: 80 }}
                    />
                    {number.format(row.requests)}
                  </Flex>
                )
              },
              count('input_tokens', t('endpoint-usage.input-tokens')),
              count('output_tokens', t('endpoint-usage.output-tokens'))
            ]}
          />
        </ScrollArea>
      )}
      {data && rows.length < data.groups && (
        <Typography.Paragraph type="secondary">
          {t('statistics.largest', { count: rows.length, total: data.groups })}
        </Typography.Paragraph>
      )}
    </section>
  );
}
