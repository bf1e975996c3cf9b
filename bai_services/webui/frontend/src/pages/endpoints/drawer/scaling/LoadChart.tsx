import { useMemo } from 'react';
import { Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { LazyChart } from '../../../../components/chart/LazyChart';
import { ErrorNotice } from '../../../../components/ErrorNotice';
import { loadQuery, type Endpoint, type ScalingRule } from '../../../../data/serving/endpoints';
import { lastLoadOf, loadOption } from './loadOption';
import { replacesData } from '../../../../data/connection';

const HEIGHT = 180;

/** The load, the desired and the ready replicas in the last hour. */
export function LoadChart({ endpoint, rule }: { endpoint: Endpoint; rule: ScalingRule }) {
  const { t, i18n } = useTranslation();
  const { data, error, refetch } = useQuery(loadQuery(endpoint.id));
  const names = useMemo(
    () => ({
      load: t('endpoint-scaling.load'),
      replicas: t('endpoint-scaling.desired'),
      ready: t('endpoint-scaling.ready')
    }),
    [t]
  );
  const option = useMemo(() => data && loadOption(data, names), [data, names]);
  if (replacesData(error, data)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!data || !option) {
    return <Skeleton active title={false} paragraph={{ rows: 5 }} style={{ height: HEIGHT }} />;
  }
  if (data.points.length === 0) {
    return <Typography.Text type="secondary">{t('endpoint-scaling.no-load')}</Typography.Text>;
  }
  const load = lastLoadOf(data);
  const format = new Intl.NumberFormat(i18n.language, { maximumFractionDigits: 2 });
  const label = t('endpoint-scaling.chart-label', {
    measure: t(`endpoint-scaling.measure-${rule.measure}`),
    load: load === null ? '–' : format.format(load),
    replicas: endpoint.replicas,
    ready: endpoint.ready_replicas
  });
  return (
    <section aria-label={t('endpoint-scaling.chart')}>
      <Typography.Text strong>{t('endpoint-scaling.chart')}</Typography.Text>
      <LazyChart option={option} height={HEIGHT} label={label} />
    </section>
  );
}
