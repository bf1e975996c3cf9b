import { useMemo } from 'react';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { LazyChart } from '../../components/chart/LazyChart';
import { reportQuery } from '../../data/usage/reports';
import { ChartSection } from './ChartSection';
import {
  heatMapOption,
  overTimeOption,
  pointsOf,
  startLabel,
  utilizationByHour,
  waitingByHour,
  waitingOption,
  weekdayNames,
  withEmptyIntervals
} from './charts';
import { smallFormat, useHours, usePercent } from './formats';
import { everyOf, latestDays, type ReportPeriod } from './search';

const CHART_HEIGHT = 240;
// Below the API's limit for reports by hour, 31 times 24 hours: a day can have 25 hours.
const MAX_DAYS_BY_HOUR = 30;
const HOUR_SECONDS = 3600;

const localStart = (date: string) => new Date(`${date}T00:00`);

const requestOf = ({ since, until }: ReportPeriod) => ({ since, ...(until && { until }) });

/** Allocated, used and wasted hours of a slot over time. */
export function OverTime(props: { period: ReportPeriod; slot: string; isOwn: boolean }) {
  const { period, slot, isOwn } = props;
  const { t, i18n } = useTranslation();
  const hours = useHours();
  const every = everyOf(period);
  const query = useQuery(reportQuery({ ...requestOf(period), every, by: 'total', slot, isOwn }));
  const { since, until } = period;
  const points = useMemo(
    () =>
      withEmptyIntervals(
        pointsOf(query.data?.rows ?? [], slot),
        every,
        localStart(since),
        until === undefined ? new Date() : localStart(until)
      ),
    [query.data, slot, every, since, until]
  );
  const option = useMemo(
    () =>
      overTimeOption(
        points,
        points.map(({ start }) => startLabel(start, every, i18n.language)),
        {
          allocated: t('statistics.allocated'),
          used: t('statistics.used'),
          wasted: t('statistics.wasted')
        },
        value => hours(value * HOUR_SECONDS)
      ),
    [points, every, hours, t, i18n.language]
  );
  const total = points.reduce((sum, { allocated }) => sum + allocated, 0);
  return (
    <ChartSection title={t('statistics.over-time')} query={query} isEmpty={points.length === 0}>
      <LazyChart
        option={option}
        height={CHART_HEIGHT}
        label={t('statistics.over-time-label', { hours: hours(total * HOUR_SECONDS) })}
      />
    </ChartSection>
  );
}

/** Mean utilization of a slot by weekday and hour. */
export function HeatMap({ period, slot }: { period: ReportPeriod; slot: string }) {
  const { t, i18n } = useTranslation();
  const percent = usePercent();
  const latest = latestDays(period, MAX_DAYS_BY_HOUR);
  const query = useQuery(
    reportQuery({ ...requestOf(latest), every: 'hour', by: 'total', slot, isOwn: false })
  );
  const utilization = useMemo(
    () => utilizationByHour(query.data?.rows ?? [], slot),
    [query.data, slot]
  );
  const option = useMemo(
    () => heatMapOption(utilization, weekdayNames(i18n.language), percent),
    [utilization, percent, i18n.language]
  );
  const known = utilization.flat().filter(value => value !== null);
  const mean = known.reduce((sum, value) => sum + value, 0) / Math.max(1, known.length);
  return (
    <ChartSection
      title={t('statistics.heat-map')}
      note={t('statistics.latest', { count: latest.days })}
      query={query}
      isEmpty={known.length === 0}
    >
      <LazyChart
        option={option}
        height={CHART_HEIGHT}
        label={t('statistics.heat-map-label', { mean: percent(mean) })}
      />
    </ChartSection>
  );
}

/** Mean number of waiting sessions by hour of the day. */
export function QueueWait({ period }: { period: ReportPeriod }) {
  const { t, i18n } = useTranslation();
  const latest = latestDays(period, MAX_DAYS_BY_HOUR);
  const query = useQuery(
    reportQuery({
      ...requestOf(latest),
      every: 'hour',
      by: 'total',
      slot: 'sessions',
      isOwn: false
    })
  );
  const waiting = useMemo(
    () =>
      waitingByHour(
        query.data?.rows ?? [],
        latest.days,
        latest.until === undefined ? new Date().getHours() : undefined
      ),
    [query.data, latest.days, latest.until]
  );
  const option = useMemo(() => {
    return waitingOption(waiting, t('statistics.waiting'), smallFormat(i18n.language));
  }, [waiting, t, i18n.language]);
  const busiest = waiting.indexOf(Math.max(...waiting));
  return (
    <ChartSection
      title={t('statistics.waiting')}
      note={t('statistics.latest', { count: latest.days })}
      query={query}
      isEmpty={waiting.every(value => value === 0)}
    >
      <LazyChart
        option={option}
        height={CHART_HEIGHT}
        label={t('statistics.waiting-label', { hour: busiest })}
      />
    </ChartSection>
  );
}
