import assert from 'node:assert/strict';
import test from 'node:test';

import {
  clockTime,
  endedTexts,
  endRuleNotification,
  endRuleTexts,
  idleCheckNotification,
  idleCheckTexts,
  idleRuleState,
  inLocalTime,
  reasonText
} from '../src/format.ts';

const TEXTS: Record<string, string> = {
  PENDING: '대기 중',
  'reasons.dependencies-unmet': '기다리는 중: {parts:, }',
  'reasons.session-in-status': '{name} ({status})'
};
const korean = (key: string) => TEXTS[key] ?? key;
const one = (name: string) => ({
  code: 'session-in-status',
  values: { name, status: 'PENDING' },
  parts: []
});

test('a reason is built from its code, values and parts', () => {
  const coded = { code: 'dependencies-unmet', values: {}, parts: [one('a'), one('{name}')] };
  const shown = reasonText(korean, 'waits for the success of …', coded);
  assert.equal(shown, '기다리는 중: a (대기 중), {name} (대기 중)');
});

test('the English message is shown if the code, its text or a value is missing', () => {
  const unknown = { code: 'of-a-newer-manager', values: {}, parts: [] };
  const without = { ...one('a'), values: { name: 'a' } };
  for (const coded of [null, unknown, without, { ...one('a'), parts: [unknown] }]) {
    assert.equal(reasonText(korean, 'the message', coded), 'the message');
  }
});

test('the texts of an idle check have its rule, values, window, end and the remaining time', () => {
  const texts: Record<string, string> = {
    'idle-check-stops-in': 'in {time}, at {at}, unless used',
    'lifetime-check-stops-in': 'in {time}, at {at}',
    'reasons.idle-utilization': '{parts:, } / {percent}% / {window_seconds} / {name}',
    'reasons.metric-below': '{metric} {value} < {limit}'
  };
  const translate = (key: string, values: Record<string, string | number> = {}) =>
    (texts[key] ?? key).replace(/\{(time|at)\}/g, (_, name: string) => String(values[name]));
  const metric = { metric: 'cpu_util', value: '1.2', limit: '5' };
  const check = {
    checker: 'gpu',
    type: 'utilization' as const,
    status: 'idle',
    is_dry_run: false,
    ends_at: '2030-01-01T00:10:00Z',
    warning_seconds: 600,
    reason: 'idle-utilization',
    coded: {
      code: 'idle-utilization',
      values: { name: 'gpu', percent: 95, window_seconds: 1800 },
      parts: [{ code: 'metric-below', values: metric, parts: [] }]
    },
    keep_alives_left: 2,
    allows_exclusion: false
  };
  const at = inLocalTime(check.ends_at);
  assert.deepEqual(idleCheckTexts(translate, check, 600), [
    `in 0:10:00, at ${at}, unless used`,
    'cpu_util 1.2 < 5 / 95% / 0:30:00 / gpu'
  ]);
  const lifetime = { ...check, type: 'session-lifetime' as const, reason: 'too long', coded: null };
  assert.deepEqual(idleCheckTexts(translate, lifetime, 600), [`in 0:10:00, at ${at}`, 'too long']);
  // A notification has no countdown, which would not be updated.
  const stated = (key: string, values: Record<string, string | number> = {}) =>
    [key, ...Object.values(values)].join(' | ');
  const when = clockTime(check.ends_at);
  assert.equal(
    idleCheckNotification(stated, lifetime),
    `lifetime-check-stops-at | ${when} | too long`
  );
  assert.equal(
    idleCheckNotification(stated, { ...check, coded: null }),
    `idle-check-stops-at | ${when} | idle-utilization`
  );
});

test('a countdown that has ended says that the session is being stopped', () => {
  const key = (name: string) => name;
  const rule = { ends_at: '2030-01-01T00:10:00Z', reason: 'spent', coded: null };
  assert.equal(endRuleTexts(key, rule, 1)[0], 'lifetime-check-stops-in');
  assert.equal(endRuleTexts(key, rule, 0.9)[0], 'stopping-now');
});

test('an idle rule says how close it is, and when it warns first', () => {
  const now = Date.parse('2030-01-01T00:00:00Z');
  const stated = (key: string, values: Record<string, string | number> = {}) =>
    [key, ...Object.values(values)].join(' ');
  const check = {
    checker: 'gpu',
    type: 'network' as const,
    status: 'active',
    is_dry_run: false,
    ends_at: null,
    earliest_end_at: '2030-01-01T00:10:00Z',
    earliest_warning_at: '2030-01-01T00:08:00Z',
    warning_seconds: null,
    reason: '',
    coded: null,
    keep_alives_left: 0,
    allows_exclusion: false
  };
  const state = (changes: object) => idleRuleState(stated, { ...check, ...changes }, now);
  assert.equal(state({}), 'idle-rule-expected 0:10:00 idle-rule-warning 0:08:00');
  assert.equal(state({ earliest_warning_at: null }), 'idle-rule-expected 0:10:00');
  assert.equal(
    state({ type: 'session-lifetime', earliest_warning_at: '2029-12-31T23:59:00Z' }),
    'idle-rule-lifetime 0:10:00'
  );
  assert.equal(state({ status: 'excluded' }), 'idle-rule-excluded');
  assert.equal(state({ earliest_end_at: null }), 'idle-rule-in-use');
  assert.equal(state({ earliest_end_at: null, status: 'idle' }), 'idle-rule-pressure');
  assert.equal(state({ earliest_end_at: undefined, status: 'not-checked' }), 'idle-rule-unjudged');
});

test('the texts of the stop by a rule have its time and the rule', () => {
  const coded = { code: 'budget-stop', values: { name: 'p1' }, parts: [] };
  const rule = { ends_at: '2030-01-01T00:10:00Z', reason: 'spent', coded };
  const stated = (key: string, values: Record<string, string | number> = {}) =>
    key === 'reasons.budget-stop'
      ? 'budget of {name} spent'
      : [key, ...Object.values(values)].join(' | ');
  assert.deepEqual(endRuleTexts(stated, rule, 60), [
    `lifetime-check-stops-in | 0:01:00 | ${inLocalTime(rule.ends_at)}`,
    'budget of p1 spent'
  ]);
  assert.equal(
    endRuleNotification(stated, rule),
    `lifetime-check-stops-at | ${clockTime(rule.ends_at)} | budget of p1 spent`
  );
});

test('the notice of the end has either the reason or where it is shown', () => {
  assert.deepEqual(endedTexts(korean, null), ['problem-ended', 'reason-on-page']);
  assert.deepEqual(endedTexts(korean, { reason: 'idle', coded: one('a') }), [
    'problem-ended',
    'a (대기 중)'
  ]);
});

test('clockTime omits the date of today', () => {
  const at = '2030-01-01T12:10:00Z';
  assert.equal(clockTime(at, new Date(at)), new Date(at).toLocaleTimeString());
  assert.equal(clockTime(at, new Date('2030-01-03T00:00:00Z')), new Date(at).toLocaleString());
});
