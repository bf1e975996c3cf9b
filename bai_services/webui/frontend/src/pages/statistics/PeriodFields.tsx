import { useMemo, type ReactNode } from 'react';
import { DatePicker, Flex, Segmented } from 'antd';
import dayjs from 'dayjs';
import { useTranslation } from 'react-i18next';
import { PERIODS, periodOf, type Period, type StatisticsSearch } from './search';

/** Changes of the state in the URL; undefined removes a value. */
export type Changes = { [K in keyof StatisticsSearch]?: StatisticsSearch[K] | undefined };

export interface StatisticsProps {
  search: StatisticsSearch;
  change: (changes: Changes) => void;
  isOwn: boolean;
}

/** The period in the URL; the same object until the URL changes. */
export const usePeriod = (search: StatisticsSearch) =>
  useMemo(() => periodOf(search, new Date()), [search]);

interface PeriodFieldsProps extends Omit<StatisticsProps, 'isOwn'> {
  /** More fields, after those of the period. */
  children?: ReactNode;
}

/** The period of the statistics: the last days, or the days between two dates. */
export function PeriodFields({ search, change, children }: PeriodFieldsProps) {
  const { t } = useTranslation();
  return (
    <Flex wrap gap="small" style={{ marginBottom: 16 }}>
      <Segmented<Period>
        value={search.since ? ('' as Period) : (search.period ?? '30d')}
        onChange={value => change({ period: value, since: undefined, until: undefined })}
        aria-label={t('usage.period')}
        options={(Object.keys(PERIODS) as Period[]).map(value => ({
          value,
          label: t('statistics.days', { count: PERIODS[value] })
        }))}
      />
      <DatePicker.RangePicker
        value={search.since && search.until ? [dayjs(search.since), dayjs(search.until)] : null}
        onChange={range =>
          change({
            since: range?.[0]?.format('YYYY-MM-DD'),
            until: range?.[1]?.format('YYYY-MM-DD')
          })
        }
        disabledDate={date => date.isAfter(dayjs()) || date.isBefore(dayjs().subtract(399, 'd'))}
        aria-label={t('usage.period')}
        style={{ maxWidth: 260 }}
      />
      {children}
    </Flex>
  );
}
