import { expect, test, vi } from 'vitest';
import type { Session } from '../src/data/sessions/sessions';

vi.stubGlobal('window', { addEventListener: () => undefined });
vi.mock('../src/data/client', () => ({ api: {}, ApiError: Error }));

const { stopWarning, warningKeys } = await import('../src/data/sessions/stopWarnings');

const NOW = Date.parse('2026-01-01T00:00:30Z');
const at = (seconds: number) => new Date(NOW + seconds * 1000).toISOString();
const check = (seconds: number, values: object = {}) => ({
  type: 'utilization',
  status: 'idle',
  is_dry_run: false,
  ends_at: at(seconds),
  ...values
});
const session = (values: object) =>
  ({
    id: 's1',
    status: 'RUNNING',
    idle_since: null,
    idle_ends_at: null,
    ends_at: null,
    end_rule: null,
    preemption: null,
    idle_checks: [],
    ...values
  }) as unknown as Session;
const stageOf = (values: object) => stopWarning(session(values), NOW)?.stage;

test.each([
  ['more than ten minutes before the end', { ends_at: at(601) }, undefined],
  ['ten minutes before the end', { ends_at: at(600) }, 'soon'],
  ['two minutes before the end', { ends_at: at(120) }, 'last'],
  ['after the announced end', { ends_at: at(-20) }, 'last'],
  ['when a preemption is planned', { preemption: { stops_at: at(30) } }, 'last'],
  ['when a checker stops it', { idle_checks: [check(40)] }, 'last'],
  [
    'when a checker would stop it if it became idle',
    { idle_checks: [check(40, { status: 'active' })] },
    undefined
  ],
  ['in a dry run', { idle_checks: [check(40, { is_dry_run: true })] }, undefined],
  ['without an end', {}, undefined],
  ['when it is not running', { status: 'TERMINATING', ends_at: at(30) }, undefined]
])('the stage of the warning %s', (_, values, stage) => {
  expect(stageOf(values)).toBe(stage);
});

test('a short idle timeout warns only after half of its time', () => {
  const idle = (since: number, end: number) => ({ idle_since: at(since), idle_ends_at: at(end) });
  expect(stageOf(idle(-10, 290))).toBe(undefined);
  expect(stageOf(idle(-150, 150))).toBe('soon');
  expect(stageOf(idle(-3000, 600))).toBe('soon');
  expect(stageOf(idle(-2999, 601))).toBe(undefined);
});

test('the time limit that the user of a batch session has set warns only at its end', () => {
  const rule = (seconds: number, code: string) => ({ ends_at: at(seconds), coded: { code } });
  const batch = (left: number, limit = 600) => ({
    end_rule: rule(left, 'batch-timeout'),
    batch_timeout: limit
  });
  expect(stageOf(batch(600))).toBe(undefined);
  expect(stageOf(batch(121))).toBe(undefined);
  expect(stageOf(batch(120))).toBe('last');
  // Not at the start.
  expect(stageOf(batch(60, 60))).toBe(undefined);
  expect(stageOf(batch(30, 60))).toBe('last');
  // Another rule stops it first.
  expect(stageOf({ ...batch(600), end_rule: rule(500, 'budget-stop') })).toBe('soon');
});

test('a closed warning stays closed if its end varies by less than a minute', () => {
  const keys = (seconds: number) => {
    const warning = stopWarning(session({ idle_checks: [check(seconds)] }), NOW);
    return warning ? warningKeys(warning) : [];
  };
  const [closed] = keys(300);
  for (const seconds of [300, 270, 330]) {
    expect(keys(seconds)).toContain(closed);
  }
  expect(keys(450)).not.toContain(closed);
  // Two minutes before the end, it is shown again.
  expect(keys(110)).not.toContain(closed);
});
