import type { ScalingRule, ScalingRuleInput } from '../../../../data/serving/endpoints';

export const MEASURES = ['requests', 'cpu', 'metric-total', 'metric-mean', 'query'] as const;
export type Measure = (typeof MEASURES)[number];

export const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const;

export interface PeriodValues {
  days?: string[];
  starts?: string;
  ends?: string;
  zone?: string;
  min_replicas?: number | null;
  max_replicas?: number | null;
}

/** Values of the form of a rule. */
export interface RuleValues {
  measure: Measure;
  metric?: string;
  query?: string;
  min_replicas: number;
  max_replicas: number;
  target: number;
  utilization_percent: number;
  idle_minutes: number;
  schedule: PeriodValues[];
}

/** Targets and utilizations of new rules (`defaults_of` in core/serving/autoscaling.py). */
const TARGETS: Partial<Record<Measure, number>> = { requests: 10, cpu: 70 };

export const targetOf = (measure: Measure) => TARGETS[measure];
export const utilizationOf = (measure: Measure) => (measure === 'requests' ? 70 : 100);

// The minimum number of replicas: most loads cannot be measured without a replica.
export const minimumOf = (measure: Measure) =>
  measure === 'requests' || measure === 'query' ? 0 : 1;

export const isMetric = (measure: Measure) => measure.startsWith('metric');

export function valuesOfRule(rule: ScalingRule | null, replicas: number): RuleValues {
  if (rule === null) {
    return {
      measure: 'requests',
      min_replicas: 1,
      max_replicas: Math.max(2, replicas),
      target: 10,
      utilization_percent: 70,
      idle_minutes: 5,
      schedule: []
    };
  }
  return {
    measure: rule.measure as Measure,
    metric: rule.metric,
    query: rule.query,
    min_replicas: rule.min_replicas,
    max_replicas: rule.max_replicas,
    target: rule.target,
    utilization_percent: Math.round(rule.utilization * 100),
    idle_minutes: rule.idle_seconds / 60,
    schedule: rule.schedule.map(period => ({ ...period, days: period.days.split(',') }))
  };
}

export const ruleOfValues = (values: RuleValues): ScalingRuleInput => ({
  measure: values.measure,
  metric: isMetric(values.measure) ? (values.metric ?? '') : '',
  query: values.measure === 'query' ? (values.query ?? '') : '',
  min_replicas: values.min_replicas,
  max_replicas: values.max_replicas,
  target: values.target,
  utilization: values.utilization_percent / 100,
  idle_seconds: Math.round(values.idle_minutes * 60),
  schedule: values.schedule.map(period => ({
    days: (period.days ?? []).join(','),
    starts: period.starts ?? '',
    ends: period.ends ?? '',
    zone: period.zone ?? '',
    min_replicas: period.min_replicas ?? 0,
    max_replicas: period.max_replicas ?? 1
  }))
});

/** The local names of days such as `mon,tue`. */
export const daysText = (days: string, language: string) =>
  days
    .split(',')
    .map(day => dayName(day, language))
    .join(', ');

// 5 January 1970 was a Monday.
export const dayName = (day: string, language: string) =>
  new Intl.DateTimeFormat(language, { weekday: 'short', timeZone: 'UTC' }).format(
    Date.UTC(1970, 0, 5 + DAYS.findIndex(known => known === day))
  );
