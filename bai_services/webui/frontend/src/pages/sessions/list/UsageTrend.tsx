import { Flex } from 'antd';
import { useTranslation } from 'react-i18next';
import { Sparkline } from '../../../components/chart/Sparkline';
import type { UsageTrend as Trend } from '../../../data/sessions/usage';
import { lastOf } from '../drawer/usageCharts';

const METRICS = ['cpu', 'mem', 'device'] as const;

/** Sparklines of CPU, memory and accelerators of a session in the last 15 minutes. */
export function UsageTrend({ trend }: { trend: Trend | undefined }) {
  const { t } = useTranslation();
  return (
    <Flex vertical gap={2}>
      {METRICS.map(metric => {
        const values = trend?.[`${metric}_percent`] ?? [];
        const last = lastOf(values);
        if (last === null) {
          return null;
        }
        const text = t(`usage.trend-${metric}`, { percent: Math.round(last) });
        return (
          <Flex key={metric} gap={6} align="center" style={{ whiteSpace: 'nowrap' }}>
            <Sparkline values={values} label={t('usage.trend', { text })} />
            <small>{text}</small>
          </Flex>
        );
      })}
    </Flex>
  );
}
