import { expect, test, vi } from 'vitest';

vi.stubGlobal('document', { querySelector: () => ({ content: '{"api":"/api","xsrfToken":""}' }) });

const { ApiError } = await import('../src/data/client');
const { hasOtherProblem, problemAt } = await import('../src/pages/data/folderProblems');

test.each([
  ['already-exists', {}, 'folder a already exists', undefined, false],
  ['invalid-request', { field: 'name' }, 'folder a already exists', undefined, false],
  ['invalid-request', { field: 'host' }, undefined, 'folder a already exists', false],
  ['invalid-request', { field: 'project' }, undefined, undefined, true],
  ['invalid-request', {}, undefined, undefined, true],
  [
    'invalid-request',
    {
      problems: [
        { field: 'name', problem: 'too long' },
        { field: 'project', problem: 'unknown' }
      ]
    },
    'too long',
    undefined,
    true
  ]
])('an error %s with %j is shown at the right fields', (code, details, name, host, isOther) => {
  const error = new ApiError(400, code, 'folder a already exists', details);
  expect(problemAt('name', error)).toBe(name);
  expect(problemAt('host', error)).toBe(host);
  expect(hasOtherProblem(error)).toBe(isOther);
});

test('an error without a response is not shown at a field', () => {
  expect(problemAt('name', new Error('no'))).toBeUndefined();
  expect(hasOtherProblem(new Error('no'))).toBe(true);
});
