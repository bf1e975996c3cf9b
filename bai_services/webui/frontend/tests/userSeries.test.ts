import { expect, test } from 'vitest';
import { HOST, PREFIX, preview, usersOf } from '../src/pages/users/series';

const series = { prefix: 'class', host: 'example.com', count: 10 };

test('each number has as many digits as the last number', () => {
  expect(usersOf({ ...series, password: 'secret' }).at(0)).toEqual({
    username: 'class01',
    email: 'class01@example.com',
    need_password_change: false,
    password: 'secret'
  });
});

test('the preview shows a short series completely, and shortens a long one', () => {
  expect(preview({ ...series, count: 2 })).toEqual(['class1@example.com', 'class2@example.com']);
  expect(preview(series)).toEqual([
    'class01@example.com',
    'class02@example.com',
    '…',
    'class10@example.com'
  ]);
});

test.each(['', 'a b', 'ä', '-a', 'a'.repeat(31)])('%j is not a valid prefix', text => {
  expect(PREFIX.test(text)).toBe(false);
});

test('a host may have up to 253 characters', () => {
  expect(HOST.test('students.informatik.uni-example.de')).toBe(true);
  expect(HOST.test('a'.repeat(253))).toBe(true);
  expect(HOST.test('a'.repeat(254))).toBe(false);
});

test('an underscore is valid in a prefix, but not in a host', () => {
  expect(PREFIX.test('a_1')).toBe(true);
  expect(HOST.test('a_1.org')).toBe(false);
});
