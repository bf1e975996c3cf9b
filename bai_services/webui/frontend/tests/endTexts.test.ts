import { expect, test, vi } from 'vitest';
import type { Session } from '../src/data/sessions/sessions';

vi.mock('../src/data/client', () => ({ api: {}, ApiError: Error }));

const { afterStopText, endText } = await import('../src/data/sessions/endTexts');

const session = (values: object) =>
  ({
    idle_ends_at: null,
    ends_at: null,
    end_rule: null,
    preemption: null,
    idle_checks: [],
    ...values
  }) as unknown as Session;
const END = '2026-01-01T00:00:00Z';
const preempted = (mode: string) => session({ preemption: { mode, stops_at: END } });

test('the warning of a preemption says that the session returns by itself', () => {
  expect(endText(preempted('reschedule'))).toBe('sessions.preemption-ends-restart');
  expect(afterStopText(preempted('reschedule'))).toBe('sessions.preemption-reschedule');
});

test('a session that is ended by a preemption does not return', () => {
  expect(endText(preempted('terminate'))).toBe('sessions.preemption-ends');
  expect(afterStopText(preempted('terminate'))).toBe('sessions.preemption-terminate');
});

test('other limits have no restart', () => {
  const limited = session({ ends_at: END });
  expect(endText(limited)).toBe('sessions.lifetime-ends');
  expect(afterStopText(limited)).toBeUndefined();
});
