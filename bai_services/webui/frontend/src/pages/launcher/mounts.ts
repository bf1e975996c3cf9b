import type { Schemas } from '../../data/client';
import type { MountRow } from './form';

type OfferedFolder = Schemas['OfferedFolder'];

/**
 * The folder with the id or name in the mount, or undefined. If several folders have the name, the
 * one that the user owns; undefined if the user owns none of them.
 */
export function folderOf(
  { vfolder }: MountRow,
  folders: readonly OfferedFolder[],
  user: string
): OfferedFolder | undefined {
  const named = folders.filter(({ name }) => name === vfolder);
  return (
    folders.find(({ id }) => id === vfolder) ??
    (named.length > 1 ? named.find(({ owner }) => owner === user) : named[0])
  );
}

/** A new mount; it has the name of the folder, or the id if the name is not unique. */
export function newMount(
  { id, name }: { id: string; name: string },
  folders: readonly OfferedFolder[]
): MountRow {
  const isUnique = folders.every(folder => folder.name !== name || folder.id === id);
  return { vfolder: isUnique ? name : id, subpath: '', path: '', permission: '' };
}
