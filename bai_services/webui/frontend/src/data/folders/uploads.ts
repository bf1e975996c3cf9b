import { useSyncExternalStore } from 'react';
import { DetailedError, Upload, type UploadOptions } from 'tus-js-client';
import { config } from '../../config';
import { debouncedBatch } from '../debouncedBatch';
import { joined, refreshFiles, type Directory } from './files';
import { currentPreferences } from '../accounts/preferences';
import { queries } from '../queries';
import { nextSignIn } from '../signIn';

const CHUNK_BYTES = 32 * 2 ** 20;
const RETRY_MILLIS = [0, 1_000, 3_000, 10_000];
const DRAW_MILLIS = 200;
const UNAUTHORIZED = 401;
const CONFLICTS: readonly number[] = [409, 412];

export type UploadState = 'waiting' | 'running' | 'paused' | 'conflict' | 'done' | 'failed';

export interface FileUpload {
  key: number;
  /** Id of the folder. */
  id: string;
  /** Path in the folder. */
  path: string;
  size: number;
  sent: number;
  state: UploadState;
  error: string;
}

interface Transfer {
  upload: FileUpload;
  file: File;
  replaces: boolean;
  tus?: Upload;
}

const transfers = new Map<number, Transfer>();
const listeners = new Set<() => void>();
let shown: readonly FileUpload[] = [];
let nextKey = 1;
let timer: number | undefined;

function draw() {
  timer ??= window.setTimeout(() => {
    timer = undefined;
    shown = [...transfers.values()].map(({ upload }) => ({ ...upload }));
    listeners.forEach(listener => listener());
  }, DRAW_MILLIS);
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

/** All uploads of this browser tab, in the order in which they were added. */
export const useUploads = () => useSyncExternalStore(subscribe, () => shown);

/** Add files to the queue; `path` of each is relative to the directory. */
export function addUploads(
  { id, path: directory }: Directory,
  files: readonly { file: File; path: string }[]
) {
  for (const { file, path } of files) {
    const upload: FileUpload = {
      key: nextKey++,
      id,
      path: joined(directory, path),
      size: file.size,
      sent: 0,
      state: 'waiting',
      error: ''
    };
    transfers.set(upload.key, { upload, file, replaces: false });
  }
  startWaiting();
}

export function pauseUpload(key: number) {
  const transfer = transfers.get(key);
  if (transfer) {
    void transfer.tus?.abort();
    set(transfer, 'paused');
  }
}

export const resumeUpload = (key: number) => restart(key, false);

/** Upload a file and replace the existing file with that name. */
export const replaceFile = (key: number) => restart(key, true);

/** Remove an upload from the list. If it is not done, abort it and discard the received bytes. */
export function removeUpload(key: number) {
  const transfer = transfers.get(key);
  if (transfer) {
    void transfer.tus?.abort(transfer.upload.state !== 'done').catch(() => undefined);
    transfers.delete(key);
    startWaiting();
  }
}

/** Remove a folder's completed uploads from the list. */
export function removeDone(id: string) {
  for (const [key, { upload }] of transfers) {
    if (upload.id === id && upload.state === 'done') {
      transfers.delete(key);
    }
  }
  draw();
}

function restart(key: number, replaces: boolean) {
  const transfer = transfers.get(key);
  if (transfer) {
    transfer.replaces ||= replaces;
    set(transfer, 'waiting');
  }
}

function set(transfer: Transfer, state: UploadState, error = '') {
  Object.assign(transfer.upload, { state, error });
  startWaiting();
}

function startWaiting() {
  const all = [...transfers.values()];
  const isRunning = ({ upload }: Transfer) => upload.state === 'running';
  const free = currentPreferences().parallelUploads - all.filter(isRunning).length;
  const waiting = all.filter(({ upload }) => upload.state === 'waiting');
  for (const transfer of waiting.slice(0, Math.max(0, free))) {
    transfer.upload.state = 'running';
    void run(transfer);
  }
  draw();
}

async function run(transfer: Transfer) {
  const tus = new Upload(transfer.file, optionsOf(transfer));
  transfer.tus = tus;
  // Resume an upload that was paused, or interrupted by a reload of the page.
  const [previous] = await tus.findPreviousUploads();
  if (previous) {
    tus.resumeFromPreviousUpload(previous);
  }
  if (transfer.upload.state === 'running') {
    tus.start();
  }
}

function optionsOf(transfer: Transfer): UploadOptions {
  const { upload, replaces } = transfer;
  return {
    endpoint: `${config.api}/vfolders/${upload.id}/uploads`,
    headers: { 'X-XSRFToken': config.xsrfToken },
    metadata: { path: upload.path, ...(replaces ? {} : { 'if-none-match': '*' }) },
    chunkSize: CHUNK_BYTES,
    retryDelays: RETRY_MILLIS,
    removeFingerprintOnSuccess: true,
    fingerprint: file =>
      Promise.resolve(
        ['bai', upload.id, upload.path, file.size, file.lastModified, replaces].join('|')
      ),
    onShouldRetry: error => (error.originalResponse?.getStatus() ?? 0) < 400,
    onProgress: sent => {
      upload.sent = sent;
      draw();
    },
    onSuccess: () => {
      upload.sent = upload.size;
      set(transfer, 'done');
      refreshAfterUploads(upload.id);
    },
    onError: error => {
      const response = error instanceof DetailedError ? error.originalResponse : null;
      const status = response?.getStatus() ?? 0;
      if (status === UNAUTHORIZED) {
        set(transfer, 'paused');
        void nextSignIn().then(() => restart(upload.key, replaces));
        return;
      }
      const isConflict = CONFLICTS.includes(status);
      set(transfer, isConflict ? 'conflict' : 'failed', messageOf(response?.getBody(), error));
    }
  };
}

/** Return the error message of the API's response, else the message of `error`. */
function messageOf(body: string | undefined, error: Error): string {
  try {
    return (JSON.parse(body ?? '') as { message: string }).message;
  } catch {
    return error.message;
  }
}

/** Refresh file lists and storage usage, once for uploads that end at about the same time. */
const refreshAfterUploads = debouncedBatch<string>(ids => {
  ids.forEach(id => void refreshFiles(id));
  void queries.invalidateQueries({ queryKey: ['folders', 'quotas'] });
}, DRAW_MILLIS);
