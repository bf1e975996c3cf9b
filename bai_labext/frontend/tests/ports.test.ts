import assert from 'node:assert/strict';
import test from 'node:test';

import { portsProblem, splitWords } from '../src/ports.ts';

const LIMITS = { count: 3, lowest: 1025, highest: 65534, reserved: [2200, 8888] };

test('splitWords splits at commas and spaces', () => {
  assert.deepEqual(splitWords(' 8501,9000  9001,'), ['8501', '9000', '9001']);
  assert.deepEqual(splitWords('  '), []);
});

test('portsProblem accepts valid ports and an empty list', () => {
  assert.equal(portsProblem([], LIMITS), null);
  assert.equal(portsProblem(['1025', '65534', '8501'], LIMITS), null);
});

test('portsProblem names the problem, the invalid port and the limits', () => {
  const keyOf = (...named: string[]): string | undefined => portsProblem(named, LIMITS)?.key;
  for (const word of ['1024', '65535', '0', '-1', '85.1', 'http', '99999999', '８５０１']) {
    assert.equal(keyOf('8501', word), 'port-range', word);
  }
  assert.equal(keyOf('8501', '2200'), 'port-reserved');
  assert.equal(keyOf('8501', '9000', '08501'), 'port-twice');
  assert.equal(keyOf('8501', '8502', '8503', '8504'), 'port-count');
  assert.deepEqual(portsProblem(['80'], LIMITS), {
    key: 'port-range',
    values: { port: '80', lowest: 1025, highest: 65534 }
  });
});
