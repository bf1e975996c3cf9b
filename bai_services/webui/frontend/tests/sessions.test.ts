import { expect, test, vi } from 'vitest';
import type { Session } from '../src/data/sessions/sessions';

vi.stubGlobal('window', { addEventListener: () => undefined });
vi.mock('../src/data/client', () => ({ api: {}, ApiError: Error }));

const { hasFailed } = await import('../src/data/sessions/sessions');

test.each([
  ['batch', 'TERMINATED', 'failure', true],
  ['batch', 'TERMINATED', 'success', false],
  ['batch', 'CANCELLED', 'undefined', false],
  ['batch', 'TERMINATING', 'failure', false],
  ['interactive', 'TERMINATED', 'failure', false]
])('a %s session with status %s and result %s: failed is %s', (type, status, result, expected) => {
  expect(hasFailed({ type, status, result } as Session)).toBe(expected);
});
