import { useMemo, useState, type ReactNode } from 'react';
import { DatePicker, Flex, Segmented } from 'antd';
import dayjs, { type Dayjs } from 'dayjs';
import { useTranslation } from 'react-i18next';
import { PERIODS, periodOf, type Period, type StatisticsSearch } from './search';

type Days = [Dayjs | null, Dayjs | null];

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
  // The user has entered only one of the two days.
  const [draft, setDraft] = useState<Days | null>(null);
  const chosen: Days | null =
    search.since && search.until ? [dayjs(search.since), dayjs(search.until)] : null;
  const choose = (days: Days | null) => {
    const [since, until] = (days ?? []).map(day => day?.format('YYYY-MM-DD'));
    const isWhole = Boolean(since) === Boolean(until);
    setDraft(isWhole ? null : days);
    if (isWhole) {
      change({ since, until });
    }
  };
  return (
    <Flex wrap gap="small" style={{ marginBottom: 16 }}>
      <Segmented<Period>
        value={search.since ? ('' as Period) : (search.period ?? '30d')}
        onChange={value => {
          setDraft(null);
          change({ period: value, since: undefined, until: undefined });
        }}
        aria-label={t('usage.period')}
        options={(Object.keys(PERIODS) as Period[]).map(value => ({
          value,
          label: t('statistics.days', { count: PERIODS[value] })
        }))}
      />
      <DatePicker.RangePicker
        value={draft ?? chosen}
        onChange={choose}
        // Otherwise the keyboard could not leave an empty field.
        allowEmpty
        disabledDate={date => date.isAfter(dayjs()) || date.isBefore(dayjs().subtract(399, 'd'))}
        style={{ maxWidth: 260 }}
      />
      {children}
    </Flex>
  );
}
