import { expect, test } from 'vitest';
import { droppedFiles } from '../src/pages/data/dropped';

const DENIED = new DOMException('denied', 'NotReadableError');

const fileEntry = (name: string, isReadable = true) => ({
  name,
  isFile: true,
  file: (resolve: (file: File) => void, reject: (error: DOMException) => void) =>
    isReadable ? resolve(new File(['x'], name)) : reject(DENIED)
});

function directoryEntry(name: string, batches: object[][], isReadable = true) {
  return {
    name,
    isFile: false,
    createReader: () => ({
      readEntries: (resolve: (part: object[]) => void, reject: (error: DOMException) => void) =>
        isReadable ? resolve(batches.shift() ?? []) : reject(DENIED)
    })
  };
}

test('unreadable entries are named, and all other dropped files are found', async () => {
  const entries = [
    fileEntry('a'),
    fileEntry('locked', false),
    directoryEntry('dir', [[fileEntry('b')], [fileEntry('c', false), fileEntry('d')]]),
    directoryEntry('denied', [], false)
  ];
  const items = [
    ...entries.map(entry => ({ webkitGetAsEntry: () => entry, getAsFile: () => null })),
    { webkitGetAsEntry: () => null, getAsFile: () => new File(['x'], 'image') }
  ];
  const { files, unreadable } = await droppedFiles({ items } as unknown as DataTransfer);
  expect(files.map(({ path }) => path).sort()).toEqual(['a', 'dir/b', 'dir/d', 'image']);
  expect(unreadable.sort()).toEqual(['denied', 'dir/c', 'locked']);
});
