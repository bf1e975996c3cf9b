import { describe, expect, test, vi } from 'vitest';
import type { Revision, Variant } from '../src/data/serving/endpoints';
import { differences } from '../src/pages/endpoints/differences';
import {
  commandWith,
  fieldOf,
  newEndpointOf,
  newRevisionOf,
  textToVariables,
  valuesOf
} from '../src/pages/endpoints/form';
import { sharesOf } from '../src/pages/endpoints/shares';
import { curlOf, pythonOf } from '../src/pages/endpoints/snippets';

vi.mock('../src/data/client', () => ({ api: {}, unwrap: () => undefined }));
const { readEndpointsSearch } = await import('../src/pages/endpoints/search');

const VLLM = {
  name: 'vllm',
  command: 'vllm serve',
  arguments: [{ option: '--max-model-len' }, { option: '--served-model-name' }]
} as Variant;

const CUSTOM = { name: 'custom', command: '', uses_definition: true } as Variant;

test('a new endpoint has only the fields that are filled in', () => {
  const values = {
    name: 'chat',
    variant: 'cmd',
    command: 'run',
    image: '',
    port: null,
    resources: { cpu: '1', mem: '' },
    health: { path: '/', start_seconds: null }
  };
  expect(newEndpointOf(values, undefined)).toEqual({
    name: 'chat',
    settings: {
      variant: 'cmd',
      command: 'run',
      request: { resources: { cpu: '1' }, environ: {} },
      health: { path: '/' }
    }
  });
});

describe('commandWith', () => {
  test('appends the arguments, quoted for a shell', () => {
    const values = { '--max-model-len': 4096, '--served-model-name': "it's mine" };
    expect(commandWith(VLLM, values)).toBe(
      `vllm serve --max-model-len 4096 --served-model-name 'it'"'"'s mine'`
    );
  });

  test('leaves the command to the API without arguments', () => {
    expect(commandWith(VLLM, { '--max-model-len': null })).toBeUndefined();
    expect(commandWith(undefined, { '--max-model-len': 1 })).toBeUndefined();
  });
});

describe('a new revision', () => {
  const revision = {
    settings: {
      variant: 'custom',
      command: 'old',
      port: 8000,
      model_folder: 'models',
      model_path: 'tiny',
      health: { path: '/ready' },
      rollout: { strategy: 'rolling', max_error_percent: null, max_p99_ms: null },
      request: { image: 'i', resources: { cpu: '1' }, environ: { A: 'b=c' } }
    }
  } as unknown as Revision;
  const base = valuesOf(revision);

  test('keeps the settings of its base', () => {
    expect(newRevisionOf(base, undefined, base)).toEqual({ settings: revision.settings });
  });

  test('sends emptied settings as empty', () => {
    const changed = { ...base, model_folder: '', environ: '' };
    const { settings } = newRevisionOf(changed, undefined, base);
    expect(settings.model_folder).toBe('');
    expect(settings.request?.environ).toEqual({});
  });

  test('sends emptied limits of the rollout as unchecked', () => {
    const limited = { ...base, rollout: { max_failures: 2, max_error_percent: 5, max_p99_ms: 9 } };
    const changed = { ...limited, rollout: { ...limited.rollout, max_error_percent: null } };
    const { settings } = newRevisionOf(changed, undefined, limited);
    expect(settings.rollout).toEqual({ max_failures: 2, max_error_percent: null, max_p99_ms: 9 });
  });

  test('removes the preset, the image and the folders of its base', () => {
    const request = { image: 'i', preset: 'p', mounts: [{ vfolder: 'data', path: '/data' }] };
    const settings = { ...revision.settings, request };
    const other = valuesOf({ ...revision, settings });
    expect(newRevisionOf(other, undefined, other).settings.request).toMatchObject(request);
    const changed = { ...other, image: '', preset: null, mounts: [], resources: { cpu: '2' } };
    const sent = newRevisionOf(changed, undefined, other).settings.request;
    const emptied = { image: '', preset: '', mounts: [], resources: { cpu: '2' } };
    expect(sent).toMatchObject(emptied);
  });

  test('has no resources with a preset', () => {
    const { settings } = newRevisionOf({ ...base, preset: 'p' }, undefined, base);
    expect(settings.request).toMatchObject({ preset: 'p', resources: {} });
  });

  test('leaves unchanged settings to a new definition', () => {
    const changed = { ...base, definition: 'models: []', port: 9000 };
    const { definition, settings } = newRevisionOf(changed, CUSTOM, base);
    expect(definition).toBe('models: []');
    expect(Object.keys(settings)).not.toContain('command');
    expect(settings.port).toBe(9000);
  });
});

test.each([
  ['settings.health.start_seconds', ['health', 'start_seconds']],
  ['settings.request.resources.cuda.shares', ['resources', 'cuda.shares']],
  ['mounts.0.vfolder', ['model_folder']],
  ['max_surge', ['rollout', 'max_surge']],
  ['name', ['name']],
  ['constructor', undefined]
])('the field %s of a message is shown at %s', (field, shown) => {
  expect(fieldOf(field)).toEqual(shown);
});

test('variables are one a line', () => {
  expect(textToVariables('A=b=c\n\nD=')).toEqual({ A: 'b=c', D: '' });
  expect(textToVariables('no variable')).toBeUndefined();
});

test('differences are sorted by path, and missing settings are empty', () => {
  const before = { port: 1, request: { image: 'a', environ: { A: '1' } }, variant: 'cmd' };
  const after = { port: 2, request: { image: 'a', environ: {} }, variant: 'cmd', extra: true };
  expect(differences(before, after)).toEqual([
    { path: 'extra', before: '', after: 'true' },
    { path: 'port', before: '1', after: '2' },
    { path: 'request.environ.A', before: '1', after: '' }
  ]);
});

test('shares of revisions without requests, and without weights, are omitted', () => {
  const revisions = [3, 2, 1].map(number => ({ id: `r${number}`, number }));
  expect(sharesOf({ r3: 1, r2: 9, r1: 0 }, revisions)).toEqual([
    { number: 2, share: 0.9 },
    { number: 3, share: 0.1 }
  ]);
  expect(sharesOf({}, revisions)).toEqual([]);
});

describe('the copied call', () => {
  const url = 'https://hub/services/bai-serve/chat/';

  test('has no token for a public endpoint', () => {
    const called = { url, variant: 'cmd', isPublic: true };
    expect(curlOf(called)).toBe(`curl ${url}`);
    expect(pythonOf(called)).not.toContain('BAI_TOKEN');
  });

  test('reads the token from a variable, so that it is not in the shell history', () => {
    const called = { url, variant: 'vllm', isPublic: false };
    expect(curlOf(called)).toContain('Bearer $BAI_TOKEN');
    expect(curlOf(called)).toContain(`${url}v1/chat/completions`);
    expect(pythonOf(called)).toContain(`base_url="${url}v1"`);
  });
});

test('the URL keeps valid state and ignores the rest', () => {
  const state = { item: 'id', panel: 'tokens', form: 'revision', base: 2, before: 1, after: 3 };
  expect(readEndpointsSearch(state)).toEqual(state);
  expect(readEndpointsSearch({ panel: 'overview', form: 'x', base: -1 })).toEqual({});
});
