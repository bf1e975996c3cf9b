import { expect, test } from 'vitest';
import { layOut } from '../src/pages/sessions/drawer/graphLayout';

const places = (items: [string, string[]][]) =>
  layOut(items.map(([id, depends_on]) => ({ id, depends_on }))).map(
    ({ item, column, row }) => `${item.id}:${column},${row}`
  );

test('a session is to the right of all its dependencies', () => {
  expect(
    places([
      ['evaluate', ['train-1', 'train-2', 'data']],
      ['train-1', ['data']],
      ['train-2', ['data']],
      ['data', []]
    ])
  ).toEqual(['evaluate:2,0', 'train-1:1,0', 'train-2:1,1', 'data:0,0']);
});

test('dependencies that the graph does not contain are ignored', () => {
  expect(places([['one', ['unknown']]])).toEqual(['one:0,0']);
});
