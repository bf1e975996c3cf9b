import assert from 'node:assert/strict';
import test from 'node:test';

import { parseAnsi, plain, withoutOverwritten } from '../src/ansi.ts';

const ESC = String.fromCharCode(27);

test('parseAnsi turns colors into classes and removes other sequences', () => {
  const text = `a${ESC}[1;31mbad${ESC}[0m${ESC}[2Kb${ESC}]0;title${String.fromCharCode(7)}c`;
  assert.deepEqual(parseAnsi(text), [
    { text: 'a', className: '' },
    { text: 'bad', className: 'bai-ansi-bold bai-ansi-1' },
    { text: 'b', className: '' },
    { text: 'c', className: '' }
  ]);
  assert.equal(plain(text), 'abadbc');
});

test('parseAnsi treats bright colors as normal ones and ignores 256-color styles', () => {
  const classes = [`${ESC}[92mx`, `${ESC}[38;5;31mx`, `${ESC}[32;39mx`].map(
    text => parseAnsi(text)[0]?.className
  );
  assert.deepEqual(classes, ['bai-ansi-2', '', '']);
});

test('withoutOverwritten keeps the last state of a progress bar', () => {
  assert.equal(withoutOverwritten('0 %\r50 %\r100 %\r\nnext\r\n'), '100 %\nnext\n');
});
