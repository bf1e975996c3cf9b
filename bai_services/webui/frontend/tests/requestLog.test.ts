import { expect, test } from 'vitest';
import { readablePath } from '../src/data/requestLog';

test.each([
  ['/vfolders?path=a%2Fb%20c', '/vfolders?path=a/b c'],
  ['/users/100%', '/users/100%'],
  ['/users/%E0%A4', '/users/%E0%A4']
])('%s is shown as %s', (path, text) => {
  expect(readablePath(path)).toBe(text);
});
