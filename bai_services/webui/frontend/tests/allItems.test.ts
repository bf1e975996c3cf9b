import { expect, test } from 'vitest';
import { allItems, MAX_LIMIT } from '../src/data/allItems';

test.each([
  [0, 1],
  [MAX_LIMIT - 1, 1],
  [MAX_LIMIT, 2],
  [2 * MAX_LIMIT + 1, 3]
])('a list of %i items is read completely in %i requests', async (total, requests) => {
  const list = Array.from({ length: total }, (_, index) => index);
  const offsets: number[] = [];
  const items = await allItems(({ limit, offset }) => {
    offsets.push(offset);
    return Promise.resolve({ items: list.slice(offset, offset + limit) });
  });
  expect(items).toEqual(list);
  expect(offsets).toHaveLength(requests);
});
