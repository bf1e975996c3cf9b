import assert from 'node:assert/strict';
import test from 'node:test';

import { problemsOf } from '../src/problems.ts';

const FIELDS = ['name', 'image', 'preopen_ports'];

test('problemsOf assigns problems to fields, and problems of unknown fields to the summary', () => {
  const problems = [
    { field: 'name', problem: 'bad' },
    { field: 'preopen_ports.0', problem: 'not a number' },
    { field: 'preopen_ports.1', problem: 'taken' },
    { field: 'environ.BAI_X', problem: 'reserved' }
  ];
  assert.deepEqual(problemsOf('all of it', { problems }, FIELDS), {
    name: 'bad',
    preopen_ports: 'not a number; taken',
    '': 'environ.BAI_X: reserved'
  });
});

test('without a list of problems, the message belongs to the given field or the summary', () => {
  assert.deepEqual(problemsOf('why', { field: 'image' }, FIELDS), { image: 'why' });
  assert.deepEqual(problemsOf('why', {}, FIELDS), { '': 'why' });
});
