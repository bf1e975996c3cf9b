import type { ReactNode } from 'react';
import { Descriptions, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatDuration } from '../../../../components/time';
import { UserText } from '../../../../components/UserText';
import type { ScalingRule } from '../../../../data/serving/endpoints';
import { daysText } from './rule';

/** The rule as a table. */
export function RuleFacts({ rule }: { rule: ScalingRule }) {
  const { t, i18n } = useTranslation();
  const { language } = i18n;
  const number = (value: number) => value.toLocaleString(language);
  const facts: Record<string, ReactNode> = {
    measure: t(`endpoint-scaling.measure-${rule.measure}`),
    ...(rule.metric && { metric: <UserText text={rule.metric} /> }),
    ...(rule.query && {
      query: (
        <Typography.Text code style={{ overflowWrap: 'anywhere' }}>
          <UserText text={rule.query} />
        </Typography.Text>
      )
    }),
    bounds: `${rule.min_replicas} – ${rule.max_replicas}`,
    target: number(rule.target),
    ...(rule.utilization < 1 && {
      utilization: new Intl.NumberFormat(language, { style: 'percent' }).format(rule.utilization)
    }),
    ...(rule.min_replicas === 0 && { idle: formatDuration(rule.idle_seconds, language) }),
    ...(rule.schedule.length > 0 && {
      schedule: rule.schedule.map((period, index) => (
        <div key={index}>
          {daysText(period.days, language)} {period.starts}–{period.ends} ({period.zone}):{' '}
          {period.min_replicas} – {period.max_replicas}
        </div>
      ))
    })
  };
  return (
    <section style={{ marginBlockStart: 16 }}>
      <Typography.Title level={5}>{t('endpoint-scaling.rule')}</Typography.Title>
      <Descriptions
        bordered
        size="small"
        column={1}
        items={Object.entries(facts).map(([key, children]) => ({
          key,
          label: t(`endpoint-scaling.${key}`),
          children
        }))}
      />
    </section>
  );
}
