import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { UserText } from '../../components/UserText';
import { money } from '../../data/usage/budgets';
import { reportQuery, type ReportRequest, type UsageRow } from '../../data/usage/reports';
import { useHours, usePercent } from './formats';
import { barColumn, RankingSection } from './RankingSection';
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
  const number = new Intl.NumberFormat(i18n.language, { maximumFractionDigits: 2 });
  const notMeasured = t('statistics.not-measured');
  const secondsText = (seconds: number | null) => (seconds === null ? notMeasured : hours(seconds));
  return (
    <RankingSection<UsageRow, Group>
      title={t('statistics.ranking')}
      by={by}
      groups={groups.map(value => ({ value, label: t(`statistics.by-${value}`) }))}
      onBy={onBy}
      data={data}
      error={error}
      onRetry={() => void refetch()}
      empty={t('statistics.none')}
      columns={[
        {
          title: t(`statistics.by-${by}`),
          render: (_, row) =>
            by === 'session-kind' ? (
              t(`types.${row.name}`, row.name)
            ) : (
              <UserText text={row.name || t(`statistics.no-${by}`, '–')} />
            )
        },
        barColumn(t('statistics.allocated'), rows, row => row.allocated_seconds, hours),
        {
          title: t('statistics.utilization'),
          render: (_, row) =>
            row.used_seconds === null
              ? notMeasured
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
                    ? notMeasured
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
                    ? t('statistics.no-price')
                    : money(row.cost, data?.currency ?? '', i18n.language)
              }
            ]
          : [])
      ]}
    />
  );
}
