import assert from 'node:assert/strict';
import test from 'node:test';

import { reasonText } from '../src/format.ts';

const TEXTS: Record<string, string> = {
  PENDING: '대기 중',
  'reasons.dependencies-unmet': '기다리는 중: {parts:, }',
  'reasons.session-in-status': '{name} ({status})'
};
const korean = (key: string) => TEXTS[key] ?? key;
const one = (name: string) => ({
  code: 'session-in-status',
  values: { name, status: 'PENDING' },
  parts: []
});

test('a reason is built from its code, values and parts', () => {
  const coded = { code: 'dependencies-unmet', values: {}, parts: [one('a'), one('{name}')] };
  const shown = reasonText(korean, 'waits for the success of …', coded);
  assert.equal(shown, '기다리는 중: a (대기 중), {name} (대기 중)');
});

test('the English message is shown if the code, its text or a value is missing', () => {
  const unknown = { code: 'of-a-newer-manager', values: {}, parts: [] };
  const without = { ...one('a'), values: { name: 'a' } };
  for (const coded of [null, unknown, without, { ...one('a'), parts: [unknown] }]) {
    assert.equal(reasonText(korean, 'the message', coded), 'the message');
  }
});
