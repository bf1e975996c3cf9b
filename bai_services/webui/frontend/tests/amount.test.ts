import { expect, test } from 'vitest';
import { addAmounts, shortAmount } from '../src/components/amount';

test.each([
  ['mem', '24684084k', '23.5 GiB'],
  ['mem', '2g', '2 GiB'],
  ['mem', '0', '0'],
  ['mem', '1536', '1.5 KiB'],
  ['mem', 'unlimited', 'unlimited'],
  ['cpu', '2048', '2048'],
  ['cuda.shares', '0.25', '0.25']
])('%s %s is shown as %s', (slot, amount, shown) => {
  expect(shortAmount(slot, amount)).toBe(shown);
});

test.each([
  ['1', '1', '2'],
  ['0.1', '0.2', '0.3'],
  ['1.5g', '512m', '2147483648']
])('%s and %s are %s', (first, second, sum) => {
  expect(addAmounts(first, second)).toBe(sum);
});
