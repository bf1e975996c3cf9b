import { expect, test } from 'vitest';
import { numberOf } from '../src/components/amount';
import {
  changedValues,
  newValues,
  textToHosts,
  textToSlots
} from '../src/components/entities/values';

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
