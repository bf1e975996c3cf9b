import { expect, test } from 'vitest';
import type { LoadHistory, ScalingRule } from '../src/data/serving/endpoints';
import { lastLoadOf, seriesOf } from '../src/pages/endpoints/drawer/scaling/loadOption';
import { daysText, ruleOfValues, valuesOfRule } from '../src/pages/endpoints/drawer/scaling/rule';

const PERIOD = {
  days: 'mon,sun',
  starts: '08:00',
  ends: '20:00',
  zone: 'Asia/Seoul',
  min_replicas: 2,
  max_replicas: 4
};

const RULE: ScalingRule = {
  measure: 'metric-mean',
  metric: 'cache_use',
  query: '',
  min_replicas: 1,
  max_replicas: 4,
  target: 0.8,
  utilization: 1,
  stable_seconds: 60,
  panic_seconds: 6,
  idle_seconds: 300,
  schedule: [PERIOD]
};

test('a rule that is opened and saved does not change', () => {
  const saved = ruleOfValues(valuesOfRule(RULE, 1));
  expect({ ...RULE, ...saved }).toEqual(RULE);
  // The windows are not in the form, so the manager keeps them.
  expect(saved).not.toHaveProperty('stable_seconds');
});

test('a rule has only the fields of its measure', () => {
  const values = { ...valuesOfRule(RULE, 1), measure: 'cpu' as const, query: 'up' };
  expect(ruleOfValues(values)).toMatchObject({ measure: 'cpu', metric: '', query: '' });
});

test('days have names in the language of the user', () => {
  expect(daysText('mon,sun', 'en')).toBe('Mon, Sun');
});

test('the chart has a gap where samples are missing', () => {
  const point = (at: string, load: number | null) => ({ at, load, replicas: 1, ready: 1 });
  const history: LoadHistory = {
    interval_seconds: 15,
    load_per_replica: 1,
    points: [
      point('2030-01-01T00:00:00Z', 1),
      point('2030-01-01T00:00:15Z', 2),
      point('2030-01-01T00:10:00Z', null)
    ]
  };
  expect(seriesOf(history, 'load').map(([, value]) => value)).toEqual([1, 2, null, null]);
  expect(lastLoadOf(history)).toBe(2);
});
