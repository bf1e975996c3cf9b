import { expect, test, vi } from 'vitest';
import type { Quotas } from '../src/data/sessions/quotas';

vi.stubGlobal('localStorage', { getItem: () => null, setItem: () => undefined });

const { limitsOf, omittedQuotas, quotaScopes, readChoice } =
  await import('../src/pages/dashboard/resources');
const { moved, ordered, readLayout, resized } = await import('../src/components/board/layout');
const { readPageSize } = await import('../src/components/list/pageSize');

const slot = (name: string, limit: string | null, isLimiting: boolean) => ({
  slot: name,
  used: '1',
  limit,
  left: limit && '2',
  percent: limit === null ? null : 33,
  is_limiting: isLimiting
});

const QUOTAS: Quotas = {
  projects: [],
  project: null,
  resource_groups: [],
  resource_group: null,
  resources: [],
  mine: ['cpu', 'mem', 'cuda.shares'].map(name => ({
    slot: name,
    used: '0',
    free: '9',
    total: '9',
    percent: 0
  })),
  scopes: [
    { kind: 'domain', name: 'd', slots: [slot('cpu', '9', false)] },
    { kind: 'project', name: 'p', slots: [slot('cpu', '3', true)] },
    { kind: 'user', name: 'u', slots: [slot('cpu', null, false), slot('mem', null, false)] }
  ]
};

test('the total limit of each slot is that of the most restrictive scope', () => {
  expect(limitsOf(QUOTAS)).toEqual([
    { slot: 'cpu', used: '1', free: '2', total: '3', percent: 33 },
    { slot: 'mem', used: '1', free: null, total: null, percent: null },
    { slot: 'cuda.shares', used: '0', free: null, total: null, percent: null }
  ]);
});

test('limits come first, then used slots; the rest is shown only on request', () => {
  const unused = { ...slot('mem', null, false), used: '0' };
  const scopes = [
    { kind: 'domain', name: 'd', slots: [unused, slot('gpu', null, false)] },
    {
      kind: 'project',
      name: 'p',
      slots: [unused, slot('gpu', '4', false), slot('cpu', '3', true)]
    },
    { kind: 'user', name: 'u', slots: [unused] }
  ];
  const slots = (showsAll: boolean) =>
    quotaScopes({ ...QUOTAS, scopes }, showsAll).map(({ kind, slots: shown }) => [
      kind,
      ...shown.map(one => one.slot)
    ]);
  expect(slots(false)).toEqual([
    ['project', 'cpu', 'gpu'],
    ['domain', 'gpu']
  ]);
  expect(slots(true)).toEqual([
    ['project', 'cpu', 'gpu', 'mem'],
    ['domain', 'gpu', 'mem'],
    ['user', 'mem']
  ]);
  expect(omittedQuotas({ ...QUOTAS, scopes })).toBe(3);
});

test('cards keep their order, and new ones come last', () => {
  expect(ordered(['a', 'b', 'c'], ['c', 'gone', 'a'])).toEqual(['c', 'a', 'b']);
  expect(moved(['a', 'b', 'c'], 'c', 'a')).toEqual(['c', 'a', 'b']);
  expect(moved(['a', 'b', 'c'], 'a', 'c')).toEqual(['b', 'c', 'a']);
  expect(moved(['a', 'b'], 'x', 'a')).toEqual(['a', 'b']);
});

test('invalid stored choices are ignored or corrected', () => {
  expect(readLayout({ order: ['a', 7], sizes: { a: { span: 9, steps: 1 }, b: 'x' } })).toEqual({
    order: ['a'],
    sizes: { a: { span: 3, steps: 2 }, b: { span: 1, steps: 0 } }
  });
  expect(readLayout(null)).toEqual({ order: [], sizes: {} });
  expect(readChoice({ panel: 'evil', isFree: 1 })).toEqual({ panel: 'limits', isFree: false });
  expect(readPageSize('50')).toBe(20);
  expect(readPageSize(50)).toBe(50);
});

test('a card at its smallest or largest size cannot be resized further', () => {
  const size = (span: number, steps: number) => ({ span, steps });
  expect(resized(size(1, 2), 1, 3)).toEqual(size(1, 3));
  expect(resized(size(1, 2), 1, 1)).toBeUndefined();
  expect(resized(size(1, 10), 1, 11)).toBeUndefined();
  expect(resized(size(3, 0), 4, 0)).toBeUndefined();
  expect(resized(size(3, 0), 3, -1)).toBeUndefined();
});
