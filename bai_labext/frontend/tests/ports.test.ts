import assert from 'node:assert/strict';
import test from 'node:test';

import { whyNotPorts, words } from '../src/ports.ts';

const LIMITS = { count: 3, lowest: 1025, highest: 65534, reserved: [2200, 8888] };

test('ports stand between commas and spaces', () => {
  assert.deepEqual(words(' 8501,9000  9001,'), ['8501', '9000', '9001']);
  assert.deepEqual(words('  '), []);
});

test('ports that will do, or none, are not refused', () => {
  assert.equal(whyNotPorts([], LIMITS), null);
  assert.equal(whyNotPorts(['1025', '65534', '8501'], LIMITS), null);
});

test('a port that will not do is named with the limit', () => {
  const refused = (...named: string[]): string | undefined => whyNotPorts(named, LIMITS)?.key;
  for (const word of ['1024', '65535', '0', '-1', '85.1', 'http', '99999999', '８５０１']) {
    assert.equal(refused('8501', word), 'port-range', word);
  }
  assert.equal(refused('8501', '2200'), 'port-reserved');
  assert.equal(refused('8501', '9000', '08501'), 'port-twice');
  assert.equal(refused('8501', '8502', '8503', '8504'), 'port-count');
  assert.deepEqual(whyNotPorts(['80'], LIMITS), {
    key: 'port-range',
    places: { port: '80', lowest: 1025, highest: 65534 }
  });
});
