import assert from 'node:assert/strict';
import test from 'node:test';

import {
  afterStop,
  countdownKey,
  endingCheck,
  endingRule,
  idleSecondsLeft,
  idleStepReached,
  isDropped,
  isEnded,
  isStopDue,
  keepAlivesOf,
  lastReason,
  otherNotices,
  ruleStepReached,
  secondsLeft,
  stepReached,
  type Idleness
} from '../src/stopTimes.ts';

const NOW = Date.parse('2030-01-01T00:00:00Z');
const CHECK = {
  checker: 'net',
  type: 'network' as const,
  status: 'idle',
  is_dry_run: false,
  ends_at: null,
  warning_seconds: 60,
  reason: '',
  coded: null,
  keep_alives_left: 0,
  allows_exclusion: true
};

test('secondsLeft is null without a maximum run time and never negative', () => {
  assert.equal(secondsLeft({ ends_at: null }, NOW), null);
  assert.equal(secondsLeft({ ends_at: '2030-01-01T00:10:00+00:00' }, NOW), 600);
  assert.equal(secondsLeft({ ends_at: '2029-12-31T23:00:00+00:00' }, NOW), 0);
});

test('a warning is shown 30, 10 and 2 minutes before the maximum run time ends', () => {
  assert.deepEqual([1801, 1800, 700, 600, 121, 60, 0].map(stepReached), [
    null,
    1800,
    1800,
    600,
    600,
    120,
    120
  ]);
});

test('a session that is being stopped has not ended', () => {
  const statuses = ['PREPARING', 'RUNNING', 'TERMINATING', 'TERMINATED', 'CANCELLED', 'ERROR'];
  const ended = statuses.filter(status => isEnded({ status }));
  assert.deepEqual(ended, ['TERMINATED', 'CANCELLED', 'ERROR']);
});

test('idle warnings are shown only after half of the idle timeout', () => {
  const idle = (limit: number): Idleness => ({
    idle_since: new Date(NOW).toISOString(),
    idle_ends_at: new Date(NOW + limit * 1000).toISOString()
  });
  const after = (limit: number, ...seconds: number[]): (number | null)[] =>
    seconds.map(elapsed => idleStepReached(idle(limit), NOW + elapsed * 1000));
  assert.deepEqual(after(7200, 5399, 5400, 6600, 7080, 7200), [null, 1800, 600, 120, 120]);
  assert.deepEqual(after(600, 299, 300, 480, 9000), [null, 300, 120, 120]);
  assert.deepEqual(after(60, 29, 30, 60), [null, 30, 30]);
  assert.equal(idleStepReached({ idle_since: null, idle_ends_at: null }, NOW), null);
});

test('idleSecondsLeft is null without an idle timeout and never negative', () => {
  const ends = { idle_since: '2029-12-31T23:00:00Z', idle_ends_at: '2030-01-01T00:10:00+00:00' };
  assert.equal(idleSecondsLeft(ends, NOW), 600);
  assert.equal(idleSecondsLeft(ends, NOW + 700_000), 0);
  assert.equal(idleSecondsLeft({ idle_since: null, idle_ends_at: null }, NOW), null);
});

test('endingCheck returns the earliest-ending idle check whose warning is due', () => {
  const check = (ends_at: string | null, warning_seconds: number | null, is_dry_run = false) => ({
    ends_at,
    warning_seconds,
    is_dry_run
  });
  const soon = check('2030-01-01T00:10:00Z', 600);
  const checks = [
    check('2030-01-01T00:20:00Z', 1800),
    soon,
    check('2030-01-01T00:05:00Z', null),
    check('2030-01-01T00:05:00Z', 600, true),
    check(null, 600)
  ];
  assert.equal(endingCheck(checks), soon);
  assert.equal(endingCheck([check('2030-01-01T00:20:00Z', null)]), null);
  assert.equal(endingCheck(undefined), null);
});

test('a lifetime limit cannot be extended: keepAlivesOf returns 0', () => {
  const types = ['utilization', 'network', 'session-lifetime'] as const;
  const left = types.map(type => keepAlivesOf({ type, keep_alives_left: 2 }));
  assert.deepEqual(left, [2, 2, 0]);
});

test('otherNotices omits the notice of the check that will stop the session first', () => {
  const check = { ...CHECK, ends_at: '2030-01-01T00:10:00Z', reason: 'unused for 15min' };
  const notices = ['unused for 15min; the session is stopped at 00:10', 'other'];
  assert.deepEqual(otherNotices({ notices, idle_checks: [check] }), ['other']);
  assert.deepEqual(otherNotices({ notices, idle_checks: [] }), notices);
  assert.deepEqual(otherNotices({ notices }), notices);
});

test('afterStop: mode reschedule requeues a preempted session, mode terminate ends it', () => {
  assert.equal(afterStop('suspend', null), 'suspend');
  assert.equal(afterStop('requeue', { preemption: null }), 'requeue');
  assert.equal(afterStop('stop', { preemption: { mode: 'reschedule' } }), 'requeue');
  assert.equal(afterStop('stop', { preemption: { mode: 'terminate' } }), 'end');
  assert.equal(afterStop('stop', null), 'end');
});

test('isDropped: an announced preemption that disappears before its deadline was dropped', () => {
  const plan = { endsAt: NOW + 1000, wasSeen: true };
  const running = { status: 'RUNNING', preemption: null };
  assert.equal(isDropped(plan, running, NOW), true);
  assert.equal(isDropped(plan, { ...running, preemption: { mode: 'terminate' } }, NOW), false);
  assert.equal(isDropped({ ...plan, wasSeen: false }, running, NOW), false);
  assert.equal(isDropped(plan, { ...running, status: 'TERMINATING' }, NOW), false);
  assert.equal(isDropped(plan, running, NOW + 1000), false);
});

test('isStopDue: an announced time limit, idle timeout or idle checker has reached its end', () => {
  const session = { ends_at: null, idle_since: null, idle_ends_at: null, idle_checks: [] };
  const past = '2029-12-31T23:59:59Z';
  const check = { ...CHECK, ends_at: past };
  assert.equal(isStopDue(null, NOW), false);
  assert.equal(isStopDue(session, NOW), false);
  assert.equal(isStopDue({ ...session, ends_at: '2030-01-01T00:00:01Z' }, NOW), false);
  assert.equal(isStopDue({ ...session, ends_at: past }, NOW), true);
  assert.equal(isStopDue({ ...session, idle_ends_at: past }, NOW), true);
  assert.equal(isStopDue({ ...session, idle_checks: [check] }, NOW), true);
  assert.equal(
    isStopDue({ ...session, idle_checks: [{ ...check, is_dry_run: true }] }, NOW),
    false
  );
});

const inSeconds = (seconds: number): string => new Date(NOW + seconds * 1000).toISOString();
const budget = (seconds: number): { ends_at: string; reason: string; coded: null } => ({
  ends_at: inSeconds(seconds),
  reason: 'budget-spent',
  coded: null
});

test('a rule without a warning of its own is announced, for example a spent budget', () => {
  const rule = budget(600);
  const { ends_at } = rule;
  assert.equal(endingRule({ ends_at: inSeconds(900), end_rule: rule }), rule);
  const check = { ...CHECK, ends_at };
  const preemption = { mode: 'terminate', stops_at: ends_at };
  for (const other of [{ ends_at }, { idle_ends_at: ends_at }, { idle_checks: [check] }]) {
    assert.equal(endingRule({ ...other, end_rule: rule }), null);
  }
  assert.equal(endingRule({ preemption, end_rule: rule }), null);
  assert.equal(endingRule({}), null);
  assert.equal(endingRule(null), null);
});

test('the stop by a rule is announced 30, 10 and 2 minutes before', () => {
  const steps = [1801, 1800, 600, 120].map(left =>
    ruleStepReached({ end_rule: budget(left) }, NOW)
  );
  assert.deepEqual(steps, [null, 1800, 600, 120]);
  assert.equal(isStopDue({ end_rule: budget(0) }, NOW), true);
  assert.equal(isStopDue({ end_rule: budget(1) }, NOW), false);
});

test('the last reason is an announced idle check or a rule that is due', () => {
  const check = { ...CHECK, ends_at: inSeconds(60), warning_seconds: 120 };
  assert.equal(lastReason({ idle_checks: [check] }, NOW), check);
  assert.equal(lastReason({ end_rule: budget(1) }, NOW), null);
  assert.equal(lastReason({ end_rule: budget(0) }, NOW)?.reason, 'budget-spent');
  assert.equal(lastReason(null, NOW), null);
});

test('the countdown of a preemption says whether the session restarts', () => {
  const preempted = (mode: string): string => countdownKey('stop', { preemption: { mode } });
  assert.equal(preempted('reschedule'), 'preempted-restarts-in');
  assert.equal(preempted('terminate'), 'preempted-in');
  assert.equal(countdownKey('stop', null), 'preempted-in');
  assert.equal(countdownKey('suspend', null), 'suspends-in');
  assert.equal(countdownKey('requeue', null), 'requeues-in');
});
