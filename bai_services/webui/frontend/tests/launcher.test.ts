import { describe, expect, test } from 'vitest';
import { commandOf } from '../src/pages/launcher/command';
import {
  EMPTY,
  formOf,
  requestOf,
  requestOfSession,
  withoutSecrets
} from '../src/pages/launcher/form';
import { readLauncherSearch } from '../src/pages/launcher/search';
import { submits } from '../src/pages/launcher/submitKey';

const REQUEST = {
  type: 'batch',
  name: 'train',
  image: 'python',
  resources: { cpu: '2', 'cuda.shares': '0.5' },
  shared_memory: '1g',
  startup_command: "python -c 'print(1)'",
  starts_at: '2030-01-31T00:00:00.000Z',
  batch_timeout: '2h',
  cluster_size: 2,
  cluster_mode: 'multi-node',
  mounts: [{ vfolder: 'data', subpath: 'raw', path: '/home/work/x', permission: 'ro' }],
  environ: { A: '1', TOKEN: 'swordfish' },
  secret_environ: ['TOKEN'],
  preopen_ports: [5000],
  dependencies: ['before'],
  priority: 0,
  callback_url: 'https://example.org/'
} as const;

describe('the form', () => {
  test('of a request gives the same request, without secret values', () => {
    const expected = { ...REQUEST, environ: { A: '1', TOKEN: '' } };
    expect(requestOf(formOf(REQUEST))).toEqual(expected);
  });

  test('with default values gives a request that has only a type', () => {
    expect(requestOf(EMPTY)).toEqual({ type: 'interactive' });
  });

  test.each([
    undefined,
    null,
    7,
    'text',
    [],
    { mounts: 'x', environ: 3, resources: [], cluster_size: 'many', preopen_ports: [{}] }
  ])('reads %j from a URL without an error', value => {
    expect(requestOf(formOf(value)).type).toBe('interactive');
  });

  test('has no secret in the URL', () => {
    expect(JSON.stringify(withoutSecrets(REQUEST as never))).not.toContain('swordfish');
    expect(JSON.stringify(readLauncherSearch({ request: REQUEST }))).not.toContain('swordfish');
  });
});

test('the request for a similar session has the same folders, even if two share a name', () => {
  const mounts = [
    { vfolder: 'data', vfolder_id: '1', subpath: '', path: '/home/work/mine', permission: 'rw' },
    { vfolder: 'data', vfolder_id: '2', subpath: 'raw', path: '/home/work/bobs', permission: 'ro' }
  ];
  const request = requestOfSession({ ...REQUEST, requested: REQUEST.resources, mounts } as never);
  expect(request.mounts).toEqual([
    { vfolder: '1', subpath: '', path: '/home/work/mine', permission: 'rw' },
    { vfolder: '2', subpath: 'raw', path: '/home/work/bobs', permission: 'ro' }
  ]);
});

test('the command has the options of the request, quoted for the shell', () => {
  expect(commandOf(REQUEST as never)).toBe(
    'bai session create train --type batch --image python --shared-memory 1g ' +
      `--command 'python -c '"'"'print(1)'"'"'' --starts-at 2030-01-31T00:00:00.000Z ` +
      '--batch-timeout 2h --callback-url https://example.org/ --priority 0 -r cpu=2 ' +
      '-r cuda.shares=0.5 --cluster-size 2 --cluster-mode multi-node ' +
      '--mount data/raw:/home/work/x:ro -e A=1 --secret-env TOKEN --preopen 5000 ' +
      '--depends-on before'
  );
});

const ENTER = {
  key: 'Enter',
  ctrlKey: false,
  metaKey: false,
  isRepeated: false,
  isComposing: false,
  isChoosing: false,
  isInLastStep: false
};

test.each([
  ['Enter in a field', {}, false],
  ['Ctrl+Enter in a field', { ctrlKey: true }, true],
  ['Command+Enter in a field', { metaKey: true }, true],
  ['Enter in the last step', { isInLastStep: true }, true],
  ['a held Enter', { ctrlKey: true, isRepeated: true }, false],
  ['Enter of an input method', { isInLastStep: true, isComposing: true }, false],
  ['Ctrl+Enter in a list of choices', { ctrlKey: true, isChoosing: true }, false],
  ['another key', { key: 'a', ctrlKey: true }, false]
])('%s submits the form: %j %s', (_, changes, expected) => {
  expect(submits({ ...ENTER, ...changes })).toBe(expected);
});
