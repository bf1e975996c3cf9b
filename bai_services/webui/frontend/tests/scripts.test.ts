import { expect, test, vi } from 'vitest';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));
vi.mock('../src/data/events', () => ({ checkAccess: () => Promise.resolve() }));
vi.stubGlobal('document', { querySelector: () => null });

const { loadScript, ScriptError } = await import('../src/data/scripts');

const failed = () => new TypeError('Failed to fetch dynamically imported module: /x.js');

test('an import that fails once is repeated', async () => {
  const load = vi.fn().mockRejectedValueOnce(failed()).mockResolvedValue('module');
  expect(await loadScript(load)).toBe('module');
  expect(load).toHaveBeenCalledTimes(2);
});

test('an import that fails although the server responds asks the user to load the page again', async () => {
  const load = vi.fn().mockRejectedValue(failed());
  const error: unknown = await loadScript(load).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(ScriptError);
  expect((error as Error).message).not.toContain('x.js');
});
