import assert from 'node:assert/strict';
import test from 'node:test';

import { amount, bytes, cores, duration, fraction, parseAmount, usedOf } from '../src/format.ts';

test('bytes uses the largest unit that gives a value of at least 1', () => {
  const shown = [0, 1023, 1536, 1024 ** 2, 20 * 1024 ** 3].map(bytes);
  assert.deepEqual(shown, ['0 B', '1023 B', '1.5 KiB', '1 MiB', '20 GiB']);
});

test('parseAmount parses amounts of memory; amount formats them', () => {
  assert.equal(parseAmount('1.5g'), 1.5 * 1024 ** 3);
  assert.equal(parseAmount('64m'), 64 * 1024 ** 2);
  assert.ok(Number.isNaN(parseAmount('much')));
  assert.equal(amount('mem', '2g'), '2 GiB');
  assert.equal(amount('cuda.shares', '0.25'), '0.25');
});

test('duration formats days, hours, minutes and seconds', () => {
  assert.deepEqual([59, 3725, 90061, -4].map(duration), [
    '0:00:59',
    '1:02:05',
    '1d 1:01:01',
    '0:00:00'
  ]);
});

test('cores rounds small numbers to two decimals', () => {
  assert.deepEqual([0, 0.251, 1.5, 100].map(cores), ['0', '0.25', '1.5', '100']);
});

test('usedOf uses the unit of the limit; fraction formats quarters as symbols', () => {
  const gib = 1024 ** 3;
  assert.deepEqual(usedOf(1.2 * gib, 4 * gib), ['1.2', '4 GiB']);
  assert.deepEqual(usedOf(50 * 1024 ** 2, 4 * gib), ['0.05', '4 GiB']);
  assert.deepEqual(usedOf(0, 512 * 1024 ** 2), ['0', '512 MiB']);
  assert.deepEqual(['0.25', '0.50', '0.75', '0.3', '1'].map(fraction), ['¼', '½', '¾', '0.3', '1']);
});
