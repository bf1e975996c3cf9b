import { environmentManager, QueryClient, QueryObserver } from '@tanstack/react-query';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Session } from '../src/data/sessions/sessions';

const { GET } = vi.hoisted(() => ({ GET: vi.fn<() => unknown>() }));
vi.mock('../src/data/client', () => ({
  api: { GET },
  ApiError: Error,
  unwrap: (response: unknown) => response
}));
vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));
const { sessionWithLimitsQuery } = await import('../src/data/sessions/sessions');

const START = Date.parse('2026-01-01T00:00:00Z');
const at = (seconds: number) => new Date(START + 1000 * seconds).toISOString();
const check = { is_dry_run: false, ends_at: null, status: 'not-checked' };
const response = (values: object) =>
  Promise.resolve({
    status: 'RUNNING',
    idle_ends_at: null,
    ends_at: null,
    end_rule: null,
    preemption: null,
    idle_checks: [],
    ...values
  } as unknown as Session);

beforeEach(() => {
  // Without a browser, queries are not loaded again.
  environmentManager.setIsServer(() => false);
  vi.useFakeTimers({ now: START });
  return () => vi.useRealTimers();
});

afterEach(() => GET.mockReset());

/** The times at which the session is requested in the first minute, in seconds. */
async function requestTimes(...responses: Promise<Session>[]): Promise<number[]> {
  const times: number[] = [];
  GET.mockImplementation(() => {
    times.push((Date.now() - START) / 1000);
    return responses[Math.min(times.length, responses.length) - 1];
  });
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const stop = new QueryObserver(client, sessionWithLimitsQuery('5f0c')).subscribe(() => undefined);
  await vi.advanceTimersByTimeAsync(60_000);
  stop();
  return times;
}

const EVERY_15_S = [0, 15, 30, 45, 60];

test.each([
  ['with idle checks', { idle_checks: [check] }, EVERY_15_S],
  ['with a late end', { ends_at: at(7200) }, EVERY_15_S],
  ['whose end has passed', { ends_at: at(-1) }, EVERY_15_S],
  ['without limits', {}, [0]],
  ['that has ended', { status: 'TERMINATED', idle_checks: [check], ends_at: at(5) }, [0]]
])('a session %s is loaded again each 15 s at most: %o', async (_, values, times) => {
  expect(await requestTimes(response(values))).toEqual(times);
});

test('a session is also loaded again when its countdown reaches 0', async () => {
  const checks = (end: number) => response({ idle_checks: [{ ...check, ends_at: at(end) }] });
  const responses = [checks(20), checks(20), checks(7200)];
  expect(await requestTimes(...responses)).toEqual([0, 15, 20, 35, 50]);
});

test('failed requests do not shorten the interval', async () => {
  const failure = Promise.reject(new Error('gone'));
  failure.catch(() => undefined);
  const responses = [response({ ends_at: at(4) }), failure];
  expect(await requestTimes(...responses)).toEqual([0, 4, 19, 34, 49]);
});
