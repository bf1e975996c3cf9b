import { ISignal, Signal } from '@lumino/signaling';

import { ApiError } from './api';
import type { Person } from './person';

const PIECE_BYTES = 8 * 1024 * 1024;
const AT_ONCE = 3;
const TRIES = 5;
const FIRST_PAUSE_MILLISECONDS = 1000;
const TUS = { 'Tus-Resumable': '1.0.0' };

export type UploadState = 'waiting' | 'sending' | 'done' | 'failed' | 'exists' | 'stopped';

/** A file and its path in the folder. */
export interface Wanted {
  file: File;
  path: string;
}

export interface Upload extends Wanted {
  folder: string;
  sent: number;
  state: UploadState;
  message: string;
  /** The upload's URL at the manager, once it has been created. */
  place: string;
  replaces: boolean;
}

/**
 * Uploads into folders with tus; interrupted ones continue where they stopped.
 */
export class Uploads {
  items: Upload[] = [];
  private readonly _changed = new Signal<this, void>(this);
  private readonly _landed = new Signal<this, void>(this);
  private running = 0;
  private readonly sending = new Map<Upload, XMLHttpRequest>();

  constructor(private readonly person: Person) {}

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted when no upload is in progress and at least one has finished. */
  get landed(): ISignal<this, void> {
    return this._landed;
  }

  of(folder: string): Upload[] {
    return this.items.filter(upload => upload.folder === folder);
  }

  add(folder: string, files: Wanted[]): void {
    const fresh = { folder, sent: 0, message: '', place: '', replaces: false };
    this.items = [
      ...this.items,
      ...files.map((wanted): Upload => ({ ...wanted, ...fresh, state: 'waiting' }))
    ];
    this.go();
  }

  /** Continue a failed upload where it stopped. */
  again(upload: Upload): void {
    Object.assign(upload, { state: 'waiting', message: '' });
    this.go();
  }

  replace(upload: Upload): void {
    upload.replaces = true;
    this.again(upload);
  }

  /** Abort an upload; its bytes are deleted. */
  stop(upload: Upload): void {
    upload.state = 'stopped';
    this.sending.get(upload)?.abort();
    if (upload.place) {
      this.person.fetched(upload.place, { method: 'DELETE', headers: TUS }).catch(() => undefined);
    }
    this.drop([upload]);
  }

  /** Remove ended uploads from the list. */
  clear(folder: string): void {
    this.drop(this.of(folder).filter(upload => upload.state === 'done'));
  }

  private drop(gone: Upload[]): void {
    this.items = this.items.filter(upload => !gone.includes(upload));
    this._changed.emit();
  }

  private go(): void {
    this._changed.emit();
    for (const upload of this.items.filter(item => item.state === 'waiting')) {
      if (this.running >= AT_ONCE) {
        return;
      }
      this.running += 1;
      upload.state = 'sending';
      void this.send(upload).finally(() => {
        this.running -= 1;
        this.go();
        if (this.running === 0) {
          this._landed.emit();
        }
      });
    }
  }

  private async send(upload: Upload): Promise<void> {
    for (let tried = 0; upload.state === 'sending'; tried += 1) {
      const before = upload.sent;
      try {
        await this.sendAll(upload);
        return;
      } catch (error) {
        const found = error instanceof ApiError ? error : new ApiError(String(error), 'http');
        // Progress resets the number of tries.
        tried = upload.sent > before ? 0 : tried;
        if (!(await this.mayGoOn(upload, found, tried))) {
          return;
        }
      }
    }
  }

  private async mayGoOn(upload: Upload, error: ApiError, tried: number): Promise<boolean> {
    if (upload.state !== 'sending') {
      return false;
    }
    if (error.code === 'unavailable' && tried + 1 < TRIES) {
      await new Promise(go => setTimeout(go, FIRST_PAUSE_MILLISECONDS * 2 ** tried));
      return true;
    }
    // Its offset differs from ours: query it.
    if (error.code === 'conflict' && upload.place) {
      return tried + 1 < TRIES;
    }
    // The manager no longer has it: the next try starts again.
    if (error.code === 'not-found' && upload.place) {
      Object.assign(upload, { place: '', sent: 0 });
      return tried + 1 < TRIES;
    }
    upload.state = error.code === 'changed' ? 'exists' : 'failed';
    upload.message = error.message;
    this._changed.emit();
    return false;
  }

  private async sendAll(upload: Upload): Promise<void> {
    if (upload.place) {
      const known = await this.person.fetched(upload.place, { method: 'HEAD', headers: TUS });
      upload.sent = Number(known.headers.get('Upload-Offset') ?? '0');
    } else {
      await this.begin(upload);
    }
    while (upload.sent < upload.file.size && upload.state === 'sending') {
      await this.sendPiece(upload);
    }
    if (upload.state === 'sending') {
      upload.state = 'done';
      this._changed.emit();
    }
  }

  private async begin(upload: Upload): Promise<void> {
    const facts: Record<string, string> = { path: upload.path };
    if (!upload.replaces) {
      facts['if-none-match'] = '*';
    }
    const metadata = Object.entries(facts).map(([name, value]) => `${name} ${base64(value)}`);
    const made = await this.person.fetched(`/vfolders/${upload.folder}/uploads`, {
      method: 'POST',
      headers: {
        ...TUS,
        'Upload-Length': String(upload.file.size),
        'Upload-Metadata': metadata.join(',')
      }
    });
    // An empty file is complete already.
    upload.place = upload.file.size ? (made.headers.get('Location') ?? '') : '';
    upload.sent = 0;
  }

  /** `fetch` does not report upload progress; XMLHttpRequest does. */
  private sendPiece(upload: Upload): Promise<void> {
    const start = upload.sent;
    const piece = upload.file.slice(start, start + PIECE_BYTES);
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      this.sending.set(upload, request);
      const ended = (error?: ApiError): void => {
        this.sending.delete(upload);
        if (error) {
          reject(error);
        } else {
          resolve();
        }
      };
      request.open('PATCH', this.person.url(upload.place));
      const headers = {
        ...TUS,
        ...this.person.headers,
        'Content-Type': 'application/offset+octet-stream',
        'Upload-Offset': String(start)
      };
      for (const [name, value] of Object.entries(headers)) {
        request.setRequestHeader(name, value);
      }
      request.upload.onprogress = event => {
        upload.sent = start + event.loaded;
        this._changed.emit();
      };
      request.onload = () => {
        if (request.status < 300) {
          upload.sent = start + piece.size;
          ended();
        } else {
          upload.sent = start;
          if (request.status === 401) {
            this.person.expired();
          }
          ended(errorOf(request));
        }
      };
      request.onerror = request.onabort = () => {
        upload.sent = start;
        ended(new ApiError('the connection broke off', 'unavailable'));
      };
      request.send(piece);
    });
  }
}

function errorOf(request: XMLHttpRequest): ApiError {
  try {
    const content = JSON.parse(request.responseText) as Record<string, string>;
    return new ApiError(content.message ?? '', content.error ?? 'http');
  } catch {
    // The answer of the proxy while the manager is unavailable.
    return new ApiError(request.statusText, 'unavailable');
  }
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

/**
 * Dropped or chosen files, including those below directories, with their paths.
 */
export async function wantedOf(data: DataTransfer): Promise<Wanted[]> {
  // All items at once: the list is empty after the first await.
  const dropped = [...data.items].map(item => [item.webkitGetAsEntry(), item.getAsFile()] as const);
  const found = await Promise.all(
    dropped.flatMap(([entry, file]) => {
      if (entry) {
        return [below(entry)];
      }
      // Dragged from another page, not from the disk.
      return file ? [Promise.resolve([{ file, path: file.name }])] : [];
    })
  );
  return found.flat();
}

async function below(entry: FileSystemEntry): Promise<Wanted[]> {
  const path = entry.fullPath.replace(/^\//, '');
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => {
      (entry as FileSystemFileEntry).file(resolve, reject);
    });
    return [{ file, path }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: Wanted[] = [];
  for (;;) {
    // Browsers return at most a hundred entries at a time.
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => {
      reader.readEntries(resolve, reject);
    });
    if (some.length === 0) {
      return found;
    }
    found.push(...(await Promise.all(some.map(below))).flat());
  }
}
