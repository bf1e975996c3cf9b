import { expect, test } from 'vitest';
import { runAll } from '../src/data/runAll';

test('all items are run, at most three at a time, and failures are returned', async () => {
  let running = 0;
  let highest = 0;
  const counts: number[] = [];
  const failures = await runAll(
    [...Array(10).keys()],
    3,
    async item => {
      running += 1;
      highest = Math.max(highest, running);
      await Promise.resolve();
      running -= 1;
      if (item % 4 === 0) {
        throw new Error(`no ${item}`);
      }
    },
    count => counts.push(count)
  );
  expect(highest).toBe(3);
  expect(counts).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  expect(failures.map(({ item, error }) => [item, error.message])).toEqual([
    [0, 'no 0'],
    [4, 'no 4'],
    [8, 'no 8']
  ]);
});

test('without items, the function is not called', async () => {
  expect(await runAll([], 3, () => Promise.reject(new Error('not called')))).toEqual([]);
});
