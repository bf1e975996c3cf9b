import { expect, test, vi } from 'vitest';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));
vi.stubGlobal('document', { querySelector: () => null });

const { ApiError, unreachable } = await import('../src/data/client');
const { replacesData } = await import('../src/data/connection');

test.each([
  ['the server cannot be reached', unreachable(), false],
  ['the database is down', new ApiError(503, 'unavailable', 'try again'), false],
  ['the object has been deleted', new ApiError(404, 'not-found', 'no such folder'), true],
  ['the user may not see it any more', new ApiError(403, 'forbidden', 'not allowed'), true]
])('if %s, the error replaces the data of a page: %s %s', (_, error, expected) => {
  expect(replacesData(error, { total: 1 })).toBe(expected);
  expect(replacesData(error, undefined)).toBe(true);
});

test('without an error, nothing is replaced', () => {
  expect(replacesData(null, undefined)).toBe(false);
});
