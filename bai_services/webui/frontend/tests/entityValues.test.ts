import i18next from 'i18next';
import type { ReactElement } from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { initReactI18next } from 'react-i18next';
import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import { numberOf } from '../src/components/amount';
import {
  changedValues,
  newValues,
  textToHosts,
  textToSlots
} from '../src/components/entities/values';
import type { Column } from '../src/components/entities/entity';
import { showValue } from '../src/components/entities/showValue';
import type { Item } from '../src/data/entities';
import en from '../src/i18n/en';
import { POLICIES } from '../src/pages/policies/policies';
import { BUDGETS } from '../src/pages/projects/budgets';

vi.mock('../src/config', () => ({ config: { masksUsers: false } }));

beforeAll(() =>
  i18next.use(initReactI18next).init({ lng: 'en', resources: { en: { translation: en } } })
);

test('numberOf parses a number with or without a binary suffix', () => {
  expect(numberOf('0.25')).toBe(0.25);
  expect(numberOf('16g')).toBe(16 * 2 ** 30);
});

test('textToSlots parses pairs and rejects other text', () => {
  expect(textToSlots(' cpu=8, mem=16g ')).toEqual({ cpu: '8', mem: '16g' });
  expect(textToSlots('')).toEqual({});
  expect(textToSlots('cpu')).toBeUndefined();
  expect(textToSlots('cpu=')).toBeUndefined();
});

test('textToHosts parses one host with its permissions per line', () => {
  expect(textToHosts('local: create  modify\n\nnas:')).toEqual({
    local: ['create', 'modify'],
    nas: []
  });
});

const FIELDS = [
  { key: 'name', kind: 'text' },
  { key: 'slots', kind: 'slots' },
  { key: 'limit', kind: 'number', isNullable: true },
  { key: 'is_active', kind: 'switch' }
] as const;

test('changedValues returns only changed fields', () => {
  const item = { name: 'a', slots: { cpu: '1' }, limit: 5, is_active: true };
  expect(
    changedValues(FIELDS, item, { name: 'a', slots: 'cpu=1', limit: 5, is_active: true })
  ).toEqual({});
  expect(
    changedValues(FIELDS, item, { name: 'a', slots: 'cpu=2', limit: null, is_active: false })
  ).toEqual({ slots: { cpu: '2' }, limit: null, is_active: false });
});

test('newValues omits empty fields', () => {
  expect(newValues(FIELDS, { name: 'a', slots: '', limit: undefined, is_active: false })).toEqual({
    name: 'a',
    is_active: false
  });
});

test('a limit of a policy is shown as "no limit" if it has the value of its field for that', () => {
  const shown = (name: string, values: Item) => {
    const policy = POLICIES.find(one => one.name === name);
    return policy?.columns
      .filter(({ key }) => key in values)
      .map(column => showValue(values[column.key], column, values, name));
  };
  const user = { max_concurrent_sessions: null, max_vfolder_count: 0, max_quota_scope_bytes: -1 };
  expect(shown('user-policies', user)).toEqual(Array(3).fill('no limit'));
  expect(shown('user-policies', { max_concurrent_sessions: 0, max_app_share_seconds: 0 })).toEqual([
    '0',
    'no limit'
  ]);
  expect(
    shown('keypair-policies', { idle_timeout_seconds: 0, max_lifetime_extension_seconds: 0 })
  ).toEqual(['no limit', '0']);
});

test('amounts of a budget have the currency of the prices and its number of decimal places', () => {
  const shown = (values: Item) =>
    BUDGETS.columns
      .filter(({ key }) => ['amount', 'spent', 'left'].includes(key))
      .map(column => showValue(values[column.key], column, values, 'budgets'));
  const budget = { amount: 1000, spent: 52.8, left: -0.004, currency: 'EUR' };
  expect(shown(budget)).toEqual(['1,000.00 EUR', '52.80 EUR', '0.00 EUR']);
  expect(shown({ ...budget, left: -0.22 })[2]).toBe('0.22 EUR over');
  const won = { amount: 1000, spent: 1000.4, left: -0.4, currency: 'KRW' };
  expect(shown(won)).toEqual(['1,000 KRW', '1,000 KRW', '0 KRW']);
  expect(shown({ ...won, left: -0.5 })[2]).toBe('1 KRW over');
  expect(shown({ ...budget, currency: 'credits' })[1]).toBe('52.80 credits');
  expect(shown({ amount: 5, spent: null, left: null, currency: '' })).toEqual(['5.00', '–', '–']);
});

afterEach(() => vi.unstubAllEnvs());

test('an exact time has seconds, the local time zone and a machine-readable value', () => {
  vi.stubEnv('TZ', 'Asia/Seoul');
  const shown = (column: Partial<Column>) =>
    renderToStaticMarkup(
      showValue('2026-11-28T12:40:07.5Z', { key: 'at', ...column }, {}, 'audit-log') as ReactElement
    );
  const exact = shown({ isExact: true });
  expect(exact).toMatch(/>Nov 28, 2026, 9:40:07\sPM<\/time>$/);
  expect(exact).toContain('dateTime="2026-11-28T12:40:07.5Z"');
  expect(exact).toMatch(/title="Saturday, November 28, 2026 at 9:40:07\sPM GMT\+9"/);
  expect(shown({})).toMatch(/>Nov 28, 2026, 9:40\sPM<\/time>$/);
});
