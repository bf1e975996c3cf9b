import { Flex, Progress, Select, Skeleton, Table, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { ScrollArea } from '../../components/ScrollArea';
import { UserText } from '../../components/UserText';
import { reportQuery, type ReportRequest, type UsageRow } from '../../data/usage/reports';
import { useHours, usePercent } from './formats';
import type { Group } from './search';

const JOULES_PER_KWH = 3_600_000;

interface RankingProps {
  request: ReportRequest;
  slot: string;
  by: Group;
  groups: readonly Group[];
  onBy: (by: Group) => void;
}

/** The groups with the largest usage of a slot. */
export function Ranking({ request, slot, by, groups, onBy }: RankingProps) {
  const { t, i18n } = useTranslation();
  const hours = useHours();
  const percent = usePercent();
  const { data, error, refetch } = useQuery(reportQuery({ ...request, slot }));
  const rows = data?.rows ?? [];
  const most = Math.max(0, ...rows.map(row => row.allocated_seconds));
  const number = new Intl.NumberFormat(i18n.language, { maximumFractionDigits: 2 });
  const unknown = t('statistics.unknown');
  const secondsText = (seconds: number | null) => (seconds === null ? unknown : hours(seconds));
  return (
    <section aria-label={t('statistics.ranking')} style={{ marginBottom: 24 }}>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 8 }}>
        <Typography.Title level={2} style={{ fontSize: 16, margin: 0 }}>
          {t('statistics.ranking')}
        </Typography.Title>
        <Select
          value={by}
          onChange={onBy}
          aria-label={t('statistics.by')}
          options={groups.map(value => ({ value, label: t(`statistics.by-${value}`) }))}
          style={{ minWidth: 150 }}
        />
      </Flex>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Skeleton active />}
      {data && (
        <ScrollArea label={t('statistics.ranking')}>
          <Table<UsageRow>
            size="small"
            rowKey="key"
            dataSource={rows}
            pagination={false}
            locale={{ emptyText: t('statistics.none') }}
            columns={[
              {
                title: t(`statistics.by-${by}`),
                render: (_, row) => <UserText text={row.name || '–'} />
              },
              {
                title: t('statistics.allocated'),
                render: (_, row) => (
                  <Flex gap="small" align="center">
                    <Progress
                      percent={most ? (100 * row.allocated_seconds) / most : 0}
                      showInfo={false}
                      aria-hidden
                      style={{ width: 80 }}
                    />
                    {hours(row.allocated_seconds)}
                  </Flex>
                )
              },
              {
                title: t('statistics.utilization'),
                render: (_, row) =>
                  row.used_seconds === null
                    ? unknown
                    : percent((100 * row.used_seconds) / row.measured_seconds)
              },
              {
                title: t('statistics.wasted'),
                render: (_, row) => secondsText(row.wasted_seconds)
              },
              ...(slot === 'sessions'
                ? [
                    {
                      title: t('statistics.waited'),
                      render: (_: unknown, row: UsageRow) => secondsText(row.waited_seconds)
                    }
                  ]
                : []),
              ...(rows.some(row => row.energy_joules !== null)
                ? [
                    {
                      title: t('statistics.energy'),
                      render: (_: unknown, row: UsageRow) =>
                        row.energy_joules === null
                          ? unknown
                          : `${number.format(row.energy_joules / JOULES_PER_KWH)} kWh`
                    }
                  ]
                : []),
              ...(rows.some(row => row.cost !== null)
                ? [
                    {
                      title: t('statistics.cost'),
                      render: (_: unknown, row: UsageRow) =>
                        row.cost === null
                          ? unknown
                          : `${number.format(row.cost)} ${data.currency}`.trim()
                    }
                  ]
                : [])
            ]}
          />
        </ScrollArea>
      )}
      {data && new Set(rows.map(row => row.key)).size < data.groups && (
        <Typography.Paragraph type="secondary">
          {t('statistics.largest', { count: rows.length, total: data.groups })}
        </Typography.Paragraph>
      )}
    </section>
  );
}
