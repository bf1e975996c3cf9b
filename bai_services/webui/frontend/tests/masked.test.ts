import { expect, test } from 'vitest';
import { masked } from '../src/components/masked';

test.each([
  ['alice', 'al***'],
  ['alice.long-name', 'al***'],
  ['a', 'a***'],
  ['홍길동', '홍길***'],
  ['alice@example.org', 'al***@ex***']
])('the name or address %s is masked', (text, expected) => {
  expect(masked(text)).toBe(expected);
});
