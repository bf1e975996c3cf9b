import { expect, test, vi } from 'vitest';
import type { Notice } from '../src/data/notices';

vi.stubGlobal('window', { addEventListener: () => undefined });
vi.stubGlobal('localStorage', { getItem: () => null, setItem: () => undefined });
vi.mock('../src/data/accounts/me', () => ({ meQuery: {} }));

const { readNotices, withNotice } = await import('../src/data/notices');
const { DEFAULTS, readPreferences } = await import('../src/data/accounts/preferences');
const { readSaved, withSaved } = await import('../src/data/savedFilters');
const { openGroups } = await import('../src/app/sidebar');

const notice = (key: string): Notice => ({
  key,
  kind: 'RUNNING',
  name: 'lab',
  info: '',
  at: '2026-01-01T00:00:00Z',
  session: 'id'
});

test('invalid stored values are ignored', () => {
  expect(readPreferences('text')).toEqual(DEFAULTS);
  expect(readPreferences({ startPage: '/evil', parallelUploads: 99, project: 7 })).toEqual(
    DEFAULTS
  );
  expect(readPreferences({ parallelUploads: 5 }).parallelUploads).toBe(5);
  expect(readNotices({})).toEqual([]);
  expect(readNotices([{ key: 'a' }, null, notice('b')])).toEqual([notice('b')]);
  expect(readSaved([{ list: 'a', name: 'b', search: null }])).toEqual([]);
});

test('the list of notices has at most 50 notices, the newest first', () => {
  let notices = [notice('0')];
  for (let number = 1; number <= 60; number += 1) {
    notices = withNotice(notices, notice(String(number)));
  }
  expect(notices).toHaveLength(50);
  expect(notices[0]?.key).toBe('60');
});

test('the failure of a session replaces only the notice of its start', () => {
  const failure: Notice = { ...notice('failure'), kind: 'failed', code: 1 };
  const other = { ...notice('other'), session: 'other' };
  const warning: Notice = { ...notice('warning'), kind: 'stops-soon' };
  expect(withNotice([notice('start'), other, warning], failure)).toEqual([failure, other, warning]);
  expect(readNotices([failure, { ...failure, code: '1' }])).toEqual([failure]);
});

test('a saved filter replaces only a namesake in its list; a list has at most 20 filters', () => {
  const first = { list: 'users', name: 'mine', search: { sort: 'name' } };
  const other = { ...first, list: 'agents' };
  const changed = { ...first, search: { sort: '-name' } };
  expect(withSaved([first, other], changed)).toEqual([other, changed]);
  const many = Array.from({ length: 25 }, (_, index) => ({ ...first, name: String(index) }));
  expect(withSaved(many, first)).toHaveLength(20);
});

test('the group of the current page is open, until the user closes it on this page', () => {
  const users = { path: '/users', group: 'administration' };
  expect(openGroups([], undefined, undefined)).toEqual(['administration']);
  expect(openGroups(['administration'], { path: '/start', group: '' }, undefined)).toEqual([]);
  expect(openGroups(['administration'], users, undefined)).toEqual(['administration']);
  expect(openGroups(['administration'], users, '/users')).toEqual([]);
  expect(openGroups(['administration'], users, '/agents')).toEqual(['administration']);
});

test('closed groups of the sidebar are read from the storage', () => {
  expect(readPreferences({ closedGroups: ['administration', 7] }).closedGroups).toEqual([
    'administration'
  ]);
  expect(readPreferences({ closedGroups: 'administration' }).closedGroups).toEqual([]);
});
