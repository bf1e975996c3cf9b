import { expect, test, vi } from 'vitest';
import { concerns, noticeOf } from '../src/app/notices/useLiveNotices';
import type { Session } from '../src/data/sessions/sessions';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));

const session = (environ: Record<string, string>) =>
  ({
    id: 's1',
    name: 'a',
    status: 'RUNNING',
    status_info: '',
    exit_code: null,
    environ
  }) as Session;

test('a started session is announced, a task of a pipeline is not', () => {
  expect(noticeOf(session({}))?.kind).toBe('RUNNING');
  expect(noticeOf(session({ PIPELINE_RUN: 'r1' }))).toBeUndefined();
});

test.each([
  ['the user starts', { kind: 'status', status: 'RUNNING', owner_id: 'u1' }, true],
  ['the user is prepared', { kind: 'status', status: 'PREPARING', owner_id: 'u1' }, false],
  ['the user is renamed', { kind: 'name', status: 'RUNNING', owner_id: 'u1' }, false],
  // An administrator receives the changes of all sessions.
  ['another user starts', { kind: 'status', status: 'RUNNING', owner_id: 'u2' }, false]
])('a session is read for a notice when one of %s', (_, change, expected) => {
  expect(concerns(change, 'u1')).toBe(expected);
});
