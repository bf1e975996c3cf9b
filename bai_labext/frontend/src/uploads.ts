import { ISignal, Signal } from '@lumino/signaling';

import { ApiError } from './api';
import type { UserClient } from './userClient';

const CHUNK_BYTES = 8 * 1024 * 1024;
const MAX_CONCURRENT_UPLOADS = 3;
const MAX_ATTEMPTS = 5;
const FIRST_PAUSE_MILLISECONDS = 1000;
const TUS = { 'Tus-Resumable': '1.0.0' };

export type UploadState = 'waiting' | 'sending' | 'done' | 'failed' | 'exists' | 'stopped';

/** A file and its path in the folder. */
export interface FileToUpload {
  file: File;
  path: string;
}

export interface Upload extends FileToUpload {
  folder: string;
  sent: number;
  state: UploadState;
  message: string;
  /** URL of the upload at the manager; empty before the creation, and for an empty file. */
  url: string;
  replaces: boolean;
}

/** Uploads into folders with the tus protocol, which resumes interrupted uploads. */
export class Uploads {
  items: Upload[] = [];
  private readonly _changed = new Signal<this, void>(this);
  private readonly _finished = new Signal<this, void>(this);
  private running = 0;
  private readonly sending = new Map<Upload, XMLHttpRequest>();

  constructor(private readonly client: UserClient) {}

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted when no upload is in progress and at least one has finished. */
  get finished(): ISignal<this, void> {
    return this._finished;
  }

  of(folder: string): Upload[] {
    return this.items.filter(upload => upload.folder === folder);
  }

  add(folder: string, files: FileToUpload[]): void {
    const initial = { folder, sent: 0, message: '', url: '', replaces: false };
    this.items = [
      ...this.items,
      ...files.map((file): Upload => ({ ...file, ...initial, state: 'waiting' }))
    ];
    this.startPendingUploads();
  }

  /** Resume a failed upload. */
  resume(upload: Upload): void {
    Object.assign(upload, { state: 'waiting', message: '' });
    this.startPendingUploads();
  }

  /** Repeat an upload and replace the existing file. */
  replace(upload: Upload): void {
    upload.replaces = true;
    this.resume(upload);
  }

  /** Abort an upload and delete the uploaded bytes at the manager. */
  stop(upload: Upload): void {
    upload.state = 'stopped';
    this.sending.get(upload)?.abort();
    this.deleteAtManager(upload);
    this.remove([upload]);
  }

  /** Remove completed uploads from the list. */
  clear(folder: string): void {
    this.remove(this.of(folder).filter(upload => upload.state === 'done'));
  }

  private deleteAtManager(upload: Upload): void {
    if (upload.url) {
      this.client.request(upload.url, { method: 'DELETE', headers: TUS }).catch(() => undefined);
    }
  }

  private remove(removed: Upload[]): void {
    this.items = this.items.filter(upload => !removed.includes(upload));
    this._changed.emit();
  }

  private startPendingUploads(): void {
    this._changed.emit();
    for (const upload of this.items.filter(item => item.state === 'waiting')) {
      if (this.running >= MAX_CONCURRENT_UPLOADS) {
        return;
      }
      this.running += 1;
      upload.state = 'sending';
      void this.send(upload).finally(() => {
        this.running -= 1;
        this.startPendingUploads();
        if (this.running === 0) {
          this._finished.emit();
        }
      });
    }
  }

  private async send(upload: Upload): Promise<void> {
    for (let failures = 0; upload.state === 'sending'; failures += 1) {
      const before = upload.sent;
      try {
        await this.sendAll(upload);
        return;
      } catch (error) {
        const failure = error instanceof ApiError ? error : new ApiError(String(error), 'http');
        // Count only consecutive failures without progress.
        failures = upload.sent > before ? 0 : failures;
        if (!(await this.prepareRetry(upload, failure, failures))) {
          return;
        }
      }
    }
  }

  /** Prepare a retry, and wait before it if needed; return false if the upload is not retried. */
  private async prepareRetry(upload: Upload, error: ApiError, failures: number): Promise<boolean> {
    if (upload.state !== 'sending') {
      return false;
    }
    const hasAttemptsLeft = failures + 1 < MAX_ATTEMPTS;
    if (error.code === 'unavailable' && hasAttemptsLeft) {
      await new Promise(done => setTimeout(done, FIRST_PAUSE_MILLISECONDS * 2 ** failures));
      return true;
    }
    // The offset of the manager differs; the next attempt queries it.
    if (error.code === 'conflict' && upload.url) {
      return hasAttemptsLeft;
    }
    // The manager has deleted the upload, so the next attempt creates a new one.
    if (error.code === 'not-found' && upload.url) {
      Object.assign(upload, { url: '', sent: 0 });
      return hasAttemptsLeft;
    }
    upload.state = error.code === 'changed' ? 'exists' : 'failed';
    upload.message = error.message;
    this._changed.emit();
    return false;
  }

  private async sendAll(upload: Upload): Promise<void> {
    if (upload.url) {
      const response = await this.client.request(upload.url, { method: 'HEAD', headers: TUS });
      upload.sent = Number(response.headers.get('Upload-Offset') ?? '0');
    } else {
      await this.create(upload);
      if (upload.state === 'stopped') {
        // Delete an upload that was stopped before the manager had responded with its URL.
        this.deleteAtManager(upload);
      }
    }
    while (upload.sent < upload.file.size && upload.state === 'sending') {
      await this.sendChunk(upload);
    }
    if (upload.state === 'sending') {
      upload.state = 'done';
      this._changed.emit();
    }
  }

  private async create(upload: Upload): Promise<void> {
    const values: Record<string, string> = { path: upload.path };
    if (!upload.replaces) {
      values['if-none-match'] = '*';
    }
    const metadata = Object.entries(values).map(([name, value]) => `${name} ${base64(value)}`);
    const response = await this.client.request(`/vfolders/${upload.folder}/uploads`, {
      method: 'POST',
      headers: {
        ...TUS,
        'Upload-Length': String(upload.file.size),
        'Upload-Metadata': metadata.join(',')
      }
    });
    // The upload of an empty file is complete when it is created.
    upload.url = upload.file.size ? (response.headers.get('Location') ?? '') : '';
    upload.sent = 0;
  }

  /** Send a chunk with XMLHttpRequest, because `fetch` does not report upload progress. */
  private sendChunk(upload: Upload): Promise<void> {
    const start = upload.sent;
    const chunk = upload.file.slice(start, start + CHUNK_BYTES);
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      this.sending.set(upload, request);
      const end = (error?: ApiError): void => {
        this.sending.delete(upload);
        if (error) {
          reject(error);
        } else {
          resolve();
        }
      };
      request.open('PATCH', this.client.url(upload.url));
      const headers = {
        ...TUS,
        ...this.client.headers,
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
          upload.sent = start + chunk.size;
          end();
        } else {
          upload.sent = start;
          if (request.status === 401) {
            this.client.discardToken();
          }
          end(errorOf(request));
        }
      };
      request.onerror = request.onabort = () => {
        upload.sent = start;
        end(new ApiError('the connection was lost', 'unavailable'));
      };
      request.send(chunk);
    });
  }
}

function errorOf(request: XMLHttpRequest): ApiError {
  try {
    const content = JSON.parse(request.responseText) as Record<string, string>;
    return new ApiError(content.message ?? '', content.error ?? 'http');
  } catch {
    // While the manager is unavailable, the proxy responds without JSON.
    return new ApiError(request.statusText, 'unavailable');
  }
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

/** Return the dropped files and all files in dropped directories, with their paths. */
export async function droppedFiles(data: DataTransfer): Promise<FileToUpload[]> {
  // Read all items before the first await, because the browser clears the list at an await.
  const dropped = [...data.items].map(item => [item.webkitGetAsEntry(), item.getAsFile()] as const);
  const files = await Promise.all(
    dropped.flatMap(([entry, file]) => {
      if (entry) {
        return [filesBelow(entry)];
      }
      // A file that was dragged from another page has no entry.
      return file ? [Promise.resolve([{ file, path: file.name }])] : [];
    })
  );
  return files.flat();
}

async function filesBelow(entry: FileSystemEntry): Promise<FileToUpload[]> {
  const path = entry.fullPath.replace(/^\//, '');
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => {
      (entry as FileSystemFileEntry).file(resolve, reject);
    });
    return [{ file, path }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const files: FileToUpload[] = [];
  for (;;) {
    // Some browsers return at most 100 entries per call.
    const entries = await new Promise<FileSystemEntry[]>((resolve, reject) => {
      reader.readEntries(resolve, reject);
    });
    if (entries.length === 0) {
      return files;
    }
    files.push(...(await Promise.all(entries.map(filesBelow))).flat());
  }
}
