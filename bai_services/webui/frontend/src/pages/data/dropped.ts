export interface RelativeFile {
  file: File;
  /** Path below the directory that receives the files. */
  path: string;
}

/** Files that were chosen with a file dialog, with their paths in a chosen directory. */
export const chosenFiles = (files: Iterable<File>): RelativeFile[] =>
  [...files].map(file => ({ file, path: file.webkitRelativePath || file.name }));

/** All files of what was dropped, also those in directories. */
export async function droppedFiles(transfer: DataTransfer): Promise<RelativeFile[]> {
  // The items are gone after the event: take the entries before anything else.
  const entries = [...transfer.items].flatMap(item => item.webkitGetAsEntry() ?? []);
  return (await Promise.all(entries.map(entry => filesBelow(entry, '')))).flat();
}

async function filesBelow(entry: FileSystemEntry, directory: string): Promise<RelativeFile[]> {
  const path = directory ? `${directory}/${entry.name}` : entry.name;
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) =>
      (entry as FileSystemFileEntry).file(resolve, reject)
    );
    return [{ file, path }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: RelativeFile[] = [];
  // A reader returns the entries in parts, at last an empty one.
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject)
    );
    if (part.length === 0) {
      return found;
    }
    found.push(...(await Promise.all(part.map(child => filesBelow(child, path)))).flat());
  }
}
