import { expect, test } from 'vitest';
import { folderOf, newMount } from '../src/pages/launcher/mounts';

const folder = (id: string, name: string, owner: string) => ({
  id,
  name,
  owner,
  permission: 'rw',
  is_auto_mounted: false
});
const OWN = folder('1', 'data', 'ann');
const SHARED = folder('2', 'data', 'bob');
const OTHER = folder('3', 'models', 'bob');
const ALL = [SHARED, OWN, OTHER];

test('folders with the same name are mounted and recognized separately', () => {
  const mounts = ALL.map(one => newMount(one, ALL));
  expect(mounts.map(({ vfolder }) => vfolder)).toEqual(['2', '1', 'models']);
  expect(mounts.map(mount => folderOf(mount, ALL, 'ann'))).toEqual(ALL);
});

test('an ambiguous name means the folder of the user, as in the API', () => {
  const mount = { vfolder: 'data', subpath: '', path: '', permission: '' } as const;
  expect(folderOf(mount, ALL, 'ann')).toBe(OWN);
  expect(folderOf(mount, ALL, 'carol')).toBeUndefined();
  expect(folderOf(mount, [SHARED, OTHER], 'ann')).toBe(SHARED);
  expect(folderOf({ ...mount, vfolder: 'gone' }, ALL, 'ann')).toBeUndefined();
});

test('a folder that is not yet in the list is mounted by id if its name is taken', () => {
  expect(newMount({ id: '4', name: 'data' }, [SHARED]).vfolder).toBe('4');
  expect(newMount({ id: '4', name: 'new' }, ALL).vfolder).toBe('new');
});
