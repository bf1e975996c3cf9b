import { useMemo } from 'react';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { LazyChart } from '../../../components/chart/LazyChart';
import {
  endpointReportQuery,
  type EndpointReportRequest
} from '../../../data/usage/endpointReports';
import { ChartSection } from '../ChartSection';
import { requestLabel, requestPoints, requestsOption } from './requests';

const CHART_HEIGHT = 240;
const DAY_MILLIS = 86_400_000;

/** Requests of endpoints and tokens of their models over time. */
export function RequestsChart({ request }: { request: EndpointReportRequest }) {
  const { t, i18n } = useTranslation();
  const query = useQuery(endpointReportQuery(request));
  const { since, until, every } = request;
  const rows = query.data?.rows;
  const end = until ?? query.data?.until;
  const points = useMemo(
    () => (rows?.length && end ? requestPoints(rows, every, since, dayAt(end)) : []),
    [rows, every, since, end]
  );
  const number = useMemo(() => new Intl.NumberFormat(i18n.language), [i18n.language]);
  const option = useMemo(
    () =>
      requestsOption(
        points,
        points.map(({ start }) => requestLabel(start, every, i18n.language)),
        {
          requests: t('endpoint-usage.requests'),
          input_tokens: t('endpoint-usage.input-tokens'),
          output_tokens: t('endpoint-usage.output-tokens')
        },
        value => number.format(value)
      ),
    [points, every, number, t, i18n.language]
  );
  const total = points.reduce((sum, { requests }) => sum + requests, 0);
  return (
    <ChartSection
      title={t('endpoint-usage.over-time')}
      query={query}
      isEmpty={points.length === 0}
      emptyText={t('endpoint-usage.none')}
    >
      <LazyChart
        option={option}
        height={CHART_HEIGHT}
        label={t('endpoint-usage.over-time-label', { requests: number.format(total) })}
      />
    </ChartSection>
  );
}

/** The first day (UTC) that does not begin before a time: the exclusive end of a period of days. */
const dayAt = (end: string) =>
  new Date(Math.ceil(Date.parse(end) / DAY_MILLIS) * DAY_MILLIS).toISOString().slice(0, 10);
