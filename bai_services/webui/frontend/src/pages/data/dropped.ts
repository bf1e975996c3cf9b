export interface RelativeFile {
  file: File;
  /** Path below the directory that receives the files. */
  path: string;
}

/** Files from a file dialog. If a directory was chosen, the paths begin with its name. */
export const chosenFiles = (files: Iterable<File>): RelativeFile[] =>
  [...files].map(file => ({ file, path: file.webkitRelativePath || file.name }));

export interface Dropped {
  files: RelativeFile[];
  /** Paths of the files and directories that the browser cannot read. */
  unreadable: string[];
}

/** All dropped files, including those in dropped directories. */
export async function droppedFiles(transfer: DataTransfer): Promise<Dropped> {
  // The browser clears the items after the event, so take the entries before the first await. A
  // file that is not on a disk, such as an image of another page, has no entry.
  const dropped = [...transfer.items].flatMap(
    item => item.webkitGetAsEntry() ?? item.getAsFile() ?? []
  );
  const found: Dropped = { files: [], unreadable: [] };
  await Promise.all(dropped.map(entry => addEntry(found, entry, '')));
  return found;
}

type Entry = FileSystemEntry | File;

/** Add the files of an entry to `found`. */
async function addEntry(found: Dropped, entry: Entry, directory: string): Promise<void> {
  const path = directory ? `${directory}/${entry.name}` : entry.name;
  try {
    await addFiles(found, entry, path);
  } catch {
    found.unreadable.push(path);
  }
}

async function addFiles(found: Dropped, entry: Entry, path: string): Promise<void> {
  if (entry instanceof File) {
    found.files.push({ file: entry, path });
    return;
  }
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) =>
      (entry as FileSystemFileEntry).file(resolve, reject)
    );
    found.files.push({ file, path });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  // A reader returns the entries in batches; an empty batch is the last one.
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject)
    );
    if (part.length === 0) {
      return;
    }
    await Promise.all(part.map(child => addEntry(found, child, path)));
  }
}
