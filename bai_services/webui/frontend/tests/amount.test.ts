import { expect, test } from 'vitest';
import { shortAmount } from '../src/components/amount';

test.each([
  ['mem', '24684084k', '23.5g'],
  ['mem', '2g', '2g'],
  ['mem', '0', '0'],
  ['mem', '1536', '1.5k'],
  ['mem', 'unlimited', 'unlimited'],
  ['cpu', '2048', '2048'],
  ['cuda.shares', '0.25', '0.25']
])('%s %s is shown as %s', (slot, amount, shown) => {
  expect(shortAmount(slot, amount)).toBe(shown);
});
