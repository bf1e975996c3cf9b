import { expect, test, vi } from 'vitest';
import type { Session } from '../src/data/sessions/sessions';

vi.stubGlobal('window', { addEventListener: () => undefined });
vi.mock('../src/data/client', () => ({ api: {}, ApiError: Error }));

const { endingCheck, endKind, exitCodeOf, hasFailed, otherNotices } =
  await import('../src/data/sessions/sessions');

test.each([
  ['batch', 'TERMINATED', 'failure', true],
  ['batch', 'TERMINATED', 'success', false],
  ['batch', 'CANCELLED', 'undefined', false],
  ['batch', 'TERMINATING', 'failure', false],
  ['interactive', 'TERMINATED', 'failure', false]
])('a %s session with status %s and result %s: failed is %s', (type, status, result, expected) => {
  expect(hasFailed({ type, status, result } as Session)).toBe(expected);
});

test.each([
  ['interactive', 'undefined', 0, null],
  ['interactive', 'failure', 137, 137],
  ['batch', 'success', 0, 0],
  ['batch', 'failure', 0, null],
  ['batch', 'failure', 143, 143],
  ['batch', 'undefined', null, null]
])('a %s session with the result %s and exit code %s shows %s', (type, result, code, expected) => {
  expect(exitCodeOf({ type, result, exit_code: code })).toBe(expected);
});

const check = (values: object) => ({
  type: 'utilization',
  status: 'idle',
  is_dry_run: false,
  ends_at: '2026-01-01T00:10:00Z',
  reason: 'idle-utilization: cpu_util 1%',
  ...values
});
const session = (values: object) =>
  ({ idle_ends_at: null, ends_at: null, preemption: null, idle_checks: [], ...values }) as unknown;

test('notices do not repeat the rule of a checker that the time limits show', () => {
  const notices = ['simulated', 'idle-utilization: cpu_util 1%; the session is stopped at …'];
  expect(otherNotices(session({ notices, idle_checks: [check({})] }) as Session)).toEqual([
    'simulated'
  ]);
  const dryRun = session({ notices, idle_checks: [check({ is_dry_run: true })] });
  expect(otherNotices(dryRun as Session)).toEqual(notices);
});

test('the ending check is the checker that ends a session first', () => {
  const late = check({ ends_at: '2026-01-01T00:20:00Z' });
  expect(endingCheck(session({ idle_checks: [late, check({})] }) as Session)).toEqual(check({}));
  const sooner = session({ ends_at: '2026-01-01T00:05:00Z', idle_checks: [check({})] });
  expect(endingCheck(sooner as Session)).toBe(undefined);
});

test.each([
  ['idle', { idle_ends_at: '2026-01-01T00:05:00Z' }],
  ['lifetime', { ends_at: '2026-01-01T00:05:00Z' }],
  ['rule', { end_rule: { ends_at: '2026-01-01T00:05:00Z', reason: '', coded: {} } }],
  ['checker', { idle_checks: [check({ ends_at: '2026-01-01T00:05:00Z' })] }]
])('a session ends first by: %s', (kind, values) => {
  const later = { ends_at: '2026-01-01T00:30:00Z', ...values };
  expect(endKind(session(later) as Session)).toBe(kind);
});
