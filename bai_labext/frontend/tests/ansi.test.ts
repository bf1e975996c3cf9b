import assert from 'node:assert/strict';
import test from 'node:test';

import { pieces, plain, settled } from '../src/ansi.ts';

const ESC = String.fromCharCode(27);

test('colours become classes, and what moves the cursor is left out', () => {
  const text = `a${ESC}[1;31mbad${ESC}[0m${ESC}[2Kb${ESC}]0;title${String.fromCharCode(7)}c`;
  assert.deepEqual(pieces(text), [
    { text: 'a', className: '' },
    { text: 'bad', className: 'bai-ansi-bold bai-ansi-1' },
    { text: 'b', className: '' },
    { text: 'c', className: '' }
  ]);
  assert.equal(plain(text), 'abadbc');
});

test('bright colours are as the others, one of many is none', () => {
  const classes = [`${ESC}[92mx`, `${ESC}[38;5;31mx`, `${ESC}[32;39mx`].map(
    text => pieces(text)[0]?.className
  );
  assert.deepEqual(classes, ['bai-ansi-2', '', '']);
});

test('a progress bar leaves its last state', () => {
  assert.equal(settled('0 %\r50 %\r100 %\r\nnext\r\n'), '100 %\nnext\n');
});
