import { expect, test } from 'vitest';
import {
  isInside,
  nestedRuns,
  positionsOf,
  shownEdges,
  tasksOfRuns,
  type GraphTask
} from '../src/pages/pipelines/layout';

const task = (name: string, ...needs: string[]): GraphTask => ({ name, kind: 'command', needs });
const TASKS = [
  task('prepare'),
  task('fit/train', 'prepare'),
  task('fit/deep/score', 'fit/train'),
  task('fit/deep', 'fit/deep/score'),
  task('fit', 'fit/deep'),
  task('report', 'fit')
];

test('edges connect only tasks of the same level', () => {
  expect(shownEdges(TASKS).map(({ source, target }) => `${source} ${target}`)).toEqual([
    'prepare fit',
    'fit/train fit/deep',
    'fit report'
  ]);
});

test('tasks of a sub-pipeline are inside the containing task', () => {
  const places = positionsOf(TASKS);
  const place = (name: string) => {
    const found = places.get(name);
    if (!found) {
      throw new Error(`no place for ${name}`);
    }
    return found;
  };
  expect(place('fit/deep/score').parent).toBe('fit/deep');
  expect(place('fit/train').parent).toBe('fit');
  expect(place('fit').parent).toBeUndefined();
  for (const [inner, outer] of [
    ['fit/train', 'fit'],
    ['fit/deep', 'fit'],
    ['fit/deep/score', 'fit/deep']
  ] as const) {
    expect(place(inner).x).toBeGreaterThan(0);
    expect(place(inner).y).toBeGreaterThan(0);
    expect(place(inner).x + place(inner).width).toBeLessThan(place(outer).width);
    expect(place(inner).y + place(inner).height).toBeLessThan(place(outer).height);
  }
  expect(place('fit/deep').x).toBeGreaterThan(place('fit/train').x + place('fit/train').width);
  // The next task is outside.
  expect(place('report').x).toBeGreaterThan(place('fit').x + place('fit').width);
  expect(place('fit').x).toBeGreaterThan(place('prepare').x + place('prepare').width);
});

test('in a vertical graph, tasks are below their dependencies', () => {
  const places = positionsOf(TASKS, true);
  const bottom = (name: string) => (places.get(name)?.y ?? 0) + (places.get(name)?.height ?? 0);
  expect(places.get('fit')?.y).toBeGreaterThan(bottom('prepare'));
  expect(places.get('report')?.y).toBeGreaterThan(bottom('fit'));
  expect(places.get('fit/deep')?.y).toBeGreaterThan(bottom('fit/train'));
});

test('task runs are nested even if the containing task has no run of its own', () => {
  const names = (rows: readonly { label: string; children?: readonly unknown[] }[]): unknown[] =>
    rows.map(({ label, children }) =>
      children ? [label, names(children as { label: string }[])] : label
    );
  const runs = TASKS.map(({ name }) => ({ task: name }));
  expect(names(nestedRuns(runs))).toEqual([
    'prepare',
    ['fit', ['train', ['deep', ['score']]]],
    'report'
  ]);
  const selected = runs.filter(({ task: name }) => isInside(name, 'fit/deep'));
  expect(names(nestedRuns(selected))).toEqual([['deep', ['score']]]);
  expect(isInside('fit-2', 'fit')).toBe(false);
});

test('a mapped task counts as cached only if all of its runs are cached', () => {
  const run = (index: number, is_cached: boolean) => ({
    task: 'fit',
    index,
    kind: 'command',
    needs: [],
    status: 'succeeded',
    is_cached
  });
  expect(tasksOfRuns([run(0, true), run(1, true)])[0]?.isCached).toBe(true);
  expect(tasksOfRuns([run(0, true), run(1, false)])[0]?.isCached).toBe(false);
});
