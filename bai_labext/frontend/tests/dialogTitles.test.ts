import assert from 'node:assert/strict';
import test from 'node:test';

import { isTitleOf } from '../src/dialogTitles.ts';

test('a title of a dialog is recognized, also with a name in it', () => {
  const kernel = 'Error Starting Kernel';
  assert.equal(isTitleOf(kernel, '\0', kernel), true);
  assert.equal(isTitleOf(kernel, '\0', `${kernel} 2`), false);
  const save = 'File Save Error for \0';
  assert.equal(isTitleOf(save, '\0', 'File Save Error for Untitled.ipynb'), true);
  assert.equal(isTitleOf(save, '\0', 'File Load Error for Untitled.ipynb'), false);
  const korean = '\0에 대한 파일 저장 오류';
  assert.equal(isTitleOf(korean, '\0', 'Untitled.ipynb에 대한 파일 저장 오류'), true);
  // A dialog without a title.
  assert.equal(isTitleOf('\0', '\0', ''), false);
});
