import assert from 'node:assert/strict';
import test from 'node:test';

import { problemsOf } from '../src/problems.ts';

const FIELDS = ['name', 'image', 'preopen_ports'];

test('each problem is at its field, and what the form has not is in the summary', () => {
  const problems = [
    { field: 'name', problem: 'bad' },
    { field: 'preopen_ports.0', problem: 'no number' },
    { field: 'preopen_ports.1', problem: 'taken' },
    { field: 'environ.BAI_X', problem: 'reserved' }
  ];
  assert.deepEqual(problemsOf('all of it', { problems }, FIELDS), {
    name: 'bad',
    preopen_ports: 'no number; taken',
    '': 'environ.BAI_X: reserved'
  });
});

test('a refusal of one field or of none', () => {
  assert.deepEqual(problemsOf('why', { field: 'image' }, FIELDS), { image: 'why' });
  assert.deepEqual(problemsOf('why', {}, FIELDS), { '': 'why' });
});
