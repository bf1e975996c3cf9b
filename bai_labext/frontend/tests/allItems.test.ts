import assert from 'node:assert/strict';
import test from 'node:test';

import { allItems, MAX_LIMIT } from '../src/allItems.ts';

for (const [total, requests] of [
  [0, 1],
  [MAX_LIMIT - 1, 1],
  [MAX_LIMIT, 2],
  [2 * MAX_LIMIT + 1, 3]
] as const) {
  test(`a list of ${total} items is read completely in ${requests} requests`, async () => {
    const list = Array.from({ length: total }, (_, index) => index);
    const statuses: (string | null)[] = [];
    const items = await allItems<number>(path => {
      const query = new URL(path, 'http://server').searchParams;
      statuses.push(query.get('status'));
      const [limit, offset] = [Number(query.get('limit')), Number(query.get('offset'))];
      return Promise.resolve({ items: list.slice(offset, offset + limit) });
    }, '/list?status=pending');
    assert.deepEqual(items, list);
    assert.deepEqual(
      statuses,
      Array.from({ length: requests }, () => 'pending')
    );
  });
}
