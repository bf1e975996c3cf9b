import { createContext, useContext } from 'react';
import { useTranslation } from 'react-i18next';
import { Sparkline } from '../../../components/chart/Sparkline';
import type { UsageTrend as Trend } from '../../../data/sessions/usage';
import { lastOf } from '../drawer/usageCharts';

const METRICS = ['cpu', 'mem', 'device'] as const;

/** The trends of the running sessions of a list, by session id. */
export const UsageTrends = createContext<ReadonlyMap<string, Trend> | undefined>(undefined);

/** Sparklines of CPU, memory and accelerators of a session in the last 15 minutes. */
export function UsageTrend({ session }: { session: string }) {
  const { t } = useTranslation();
  const trend = useContext(UsageTrends)?.get(session);
  return (
    <div className="bai-trends">
      {METRICS.map(metric => {
        const values = trend?.[`${metric}_percent`] ?? [];
        const last = lastOf(values);
        if (last === null) {
          return null;
        }
        const text = t(`usage.trend-${metric}`, { percent: Math.round(last) });
        return (
          <div key={metric} className="bai-trend">
            <Sparkline values={values} label={t('usage.trend', { text })} />
            <small>{text}</small>
          </div>
        );
      })}
    </div>
  );
}
