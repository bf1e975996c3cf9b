import { expect, test } from 'vitest';
import { numberOf } from '../src/components/amount';
import {
  changedValues,
  newValues,
  textToHosts,
  textToSlots
} from '../src/components/entities/values';

test('quantities are numbers with a binary suffix', () => {
  expect(numberOf('0.25')).toBe(0.25);
  expect(numberOf('16g')).toBe(16 * 2 ** 30);
});

test('slots are pairs', () => {
  expect(textToSlots(' cpu=8, mem=16g ')).toEqual({ cpu: '8', mem: '16g' });
  expect(textToSlots('')).toEqual({});
  expect(textToSlots('cpu')).toBeUndefined();
  expect(textToSlots('cpu=')).toBeUndefined();
});

test('hosts are lines with permissions', () => {
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

test('only changed fields are sent', () => {
  const item = { name: 'a', slots: { cpu: '1' }, limit: 5, is_active: true };
  expect(
    changedValues(FIELDS, item, { name: 'a', slots: 'cpu=1', limit: 5, is_active: true })
  ).toEqual({});
  expect(
    changedValues(FIELDS, item, { name: 'a', slots: 'cpu=2', limit: null, is_active: false })
  ).toEqual({ slots: { cpu: '2' }, limit: null, is_active: false });
});

test('empty fields of a new object keep their defaults', () => {
  expect(newValues(FIELDS, { name: 'a', slots: '', limit: undefined, is_active: false })).toEqual({
    name: 'a',
    is_active: false
  });
});
