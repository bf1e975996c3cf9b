import { expect, test, vi } from 'vitest';
import { noticeOf } from '../src/app/notices/useLiveNotices';
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
