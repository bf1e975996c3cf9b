import { useMemo, useState } from 'react';
import { Empty, Flex, Segmented, Select, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { LazyChart } from '../../../components/chart/LazyChart';
import { formatBytes } from '../../../components/bytes';
import { isEnded, type Session } from '../../../data/sessions/sessions';
import {
  PERIODS,
  usageHistoryQuery,
  type Period,
  type UsageHistory
} from '../../../data/sessions/usage';
import { chartsOf, lastOf, optionOf, summaryOf, type Unit, type UsageChart } from './usageCharts';

const CHART_HEIGHT = 130;

interface SessionUsageProps {
  session: Session;
  kernel: string;
  onKernel: (hostname: string) => void;
}

/** Charts of the current and past usage of a kernel. */
export function SessionUsage({ session, kernel, onKernel }: SessionUsageProps) {
  const { t } = useTranslation();
  const [period, setPeriod] = useState<Period>('15min');
  const { data, error, refetch } = useQuery(
    usageHistoryQuery(session.id, kernel, period, !isEnded(session))
  );
  const charts = useMemo(() => (data ? chartsOf(data) : []), [data]);
  return (
    <>
      <Flex wrap gap="small" style={{ marginBottom: 12 }}>
        <Segmented<Period>
          value={period}
          onChange={setPeriod}
          aria-label={t('usage.period')}
          options={(Object.keys(PERIODS) as Period[]).map(value => ({
            value,
            label: t(`usage.period-${value}`)
          }))}
        />
        {session.kernels.length > 1 && (
          <Select
            value={kernel}
            onChange={onKernel}
            aria-label={t('kernels.hostname')}
            options={session.kernels.map(({ hostname }) => ({ value: hostname, label: hostname }))}
          />
        )}
      </Flex>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Skeleton active />}
      {data && charts.length === 0 && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('usage.none')} />
      )}
      {data && charts.map(chart => <ChartOfUsage key={chart.key} chart={chart} history={data} />)}
    </>
  );
}

function ChartOfUsage({ chart, history }: { chart: UsageChart; history: UsageHistory }) {
  const { t } = useTranslation();
  const format = useFormat(chart.unit);
  const named = useMemo(
    () => ({ ...chart, series: chart.series.map(one => ({ ...one, name: nameOf(one.name, t) })) }),
    [chart, t]
  );
  const option = useMemo(() => optionOf(named, history, format), [named, history, format]);
  const texts = named.series.map(({ name, values }) => {
    const last = lastOf(values);
    const summary = summaryOf(values);
    return {
      name,
      now: last === null ? '–' : format(last),
      label:
        summary &&
        t('usage.summary', {
          name,
          mean: format(summary.mean),
          highest: format(summary.highest)
        })
    };
  });
  const limit = chart.limit ? t('usage.of', { limit: format(chart.limit) }) : '';
  return (
    <section aria-label={t(`usage.${chart.key}`)} style={{ marginBottom: 16 }}>
      <Flex wrap justify="space-between" gap="small">
        <Typography.Text strong>{t(`usage.${chart.key}`)}</Typography.Text>
        <Typography.Text type="secondary">
          {texts
            .map(({ name, now }) => (texts.length > 1 ? `${name} ${now}` : `${now} ${limit}`))
            .join(' · ')}
        </Typography.Text>
      </Flex>
      <LazyChart
        option={option}
        height={CHART_HEIGHT}
        label={texts
          .map(text => text.label)
          .filter(Boolean)
          .join('; ')}
      />
    </section>
  );
}

const NAMES = ['cpu', 'memory', 'received', 'sent', 'read', 'written'];

/** The translated name of a series; the name of a device is not translated. */
const nameOf = (name: string, t: (key: string) => string) =>
  NAMES.includes(name) ? t(`usage.${name}`) : name;

function useFormat(unit: Unit): (value: number) => string {
  const { t, i18n } = useTranslation();
  return useMemo(() => {
    const number = new Intl.NumberFormat(i18n.language, { maximumFractionDigits: 2 });
    const formats: Record<Unit, (value: number) => string> = {
      cores: value => t('usage.cores', { count: value, cores: number.format(value) }),
      bytes: value => formatBytes(value, i18n.language),
      percent: value => t('dashboard.percent', { percent: number.format(value) }),
      rate: value => t('usage.rate', { bytes: formatBytes(value, i18n.language) })
    };
    return formats[unit];
  }, [unit, t, i18n.language]);
}
