import assert from 'node:assert/strict';
import test from 'node:test';

import { restoreActions, returnActions } from '../src/returnNotice.ts';

const t = (key: string, values: Record<string, string | number> = {}): string =>
  [key, ...Object.values(values)].join(' ');
const kernel = (path: string, saved = ['x']) => ({ path, folder: '0', saved, skipped: [] });
const NOTHING = { restore: () => {}, showDetails: () => {}, dismiss: () => {} };

test('the notice stays open with the details, so that variables can still be restored', () => {
  const actions = returnActions(t, [kernel('a'), kernel('b', [])], NOTHING);
  assert.deepEqual(
    actions.map(({ label, keepsNotice }) => [label, keepsNotice]),
    [
      ['restore-variables', false],
      ['returned-details', true],
      ['dismiss', false]
    ]
  );
});

test('the variables of one kernel after another can be restored', () => {
  const restored: string[] = [];
  const kernels = [kernel('a'), kernel('b')];
  const actions = restoreActions(t, kernels, ({ path }) => void restored.push(path));
  assert.deepEqual(
    actions.map(({ label, keepsNotice }) => [label, keepsNotice]),
    [
      ['restore-variables-of a', true],
      ['restore-variables-of b', true]
    ]
  );
  actions.forEach(({ run }) => run());
  assert.deepEqual(restored, ['a', 'b']);
});
