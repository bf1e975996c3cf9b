export interface RelativeFile {
  file: File;
  /** Path below the directory that receives the files. */
  path: string;
}

/** Files from a file dialog. If a directory was chosen, the paths begin with its name. */
export const chosenFiles = (files: Iterable<File>): RelativeFile[] =>
  [...files].map(file => ({ file, path: file.webkitRelativePath || file.name }));

/** All dropped files, including those in dropped directories. */
export async function droppedFiles(transfer: DataTransfer): Promise<RelativeFile[]> {
  // The browser clears the items after the event, so take the entries before the first await. A file
  // that is not on a disk, such as an image of another page, has no entry.
  const dropped = [...transfer.items].flatMap(
    item => item.webkitGetAsEntry() ?? item.getAsFile() ?? []
  );
  const found = dropped.map(entry =>
    entry instanceof File
      ? Promise.resolve([{ file: entry, path: entry.name }])
      : filesBelow(entry, '')
  );
  return (await Promise.all(found)).flat();
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
  // A reader returns the entries in batches; an empty batch is the last one.
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
