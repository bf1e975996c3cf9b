import { expect, test, vi } from 'vitest';
import { formatBytes } from '../src/components/bytes';
import type { Folder } from '../src/data/folders/folders';
import { actionsFor } from '../src/pages/data/FolderActions';
import { filtersOfTab, readDataSearch } from '../src/pages/data/search';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));
vi.mock('../src/data/client', () => ({ api: {}, unwrap: () => undefined }));

test.each([
  [0, '0 B'],
  [1023, '1,023 B'],
  [1536, '1.5 KiB'],
  [5 * 1024 ** 3, '5 GiB']
])('formatBytes shows %i bytes as %s', (bytes, text) => {
  expect(formatBytes(bytes, 'en')).toBe(text);
});

test('readDataSearch keeps valid state and ignores the rest', () => {
  const state = { tab: 'trash', folder: 'id', sort: '-used_bytes', page: 2 };
  expect(readDataSearch({ ...state, size: 7, tabs: 'own' })).toEqual(state);
  expect(readDataSearch({ tab: 'nothing', folder: {} })).toEqual({});
});

test('a tab selects folders by their status and by their relation to the user', () => {
  expect(filtersOfTab('shared')).toEqual({
    status__in: 'cloning,ready,performing,error',
    relation: 'shared'
  });
  expect(filtersOfTab('trash')).not.toHaveProperty('relation');
});

test.each([
  ['cloning', []],
  ['performing', []],
  ['error', ['trash']],
  ['delete-pending', ['restore', 'purge']],
  ['delete-ongoing', []],
  ['delete-complete', []],
  ['delete-error', ['purge']]
])('a folder with the status %s has the actions %j', (status, actions) => {
  const folder = { status, permission: 'wd', relation: 'own', cloneable: true, is_managed: true };
  expect(actionsFor(folder as Folder, true)).toEqual(actions);
});

test('only a folder that the user manages has actions that change it', () => {
  // A user who was granted `wd` on a shared folder may write files but not manage the folder.
  const folder = { status: 'ready', permission: 'wd', relation: 'shared', cloneable: false };
  expect(actionsFor({ ...folder, is_managed: false } as Folder, false)).toEqual(['leave']);
  expect(actionsFor({ ...folder, is_managed: true } as Folder, false)).toEqual([
    'share',
    'change',
    'leave',
    'trash'
  ]);
});
