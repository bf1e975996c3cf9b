import { queryOptions, useMutation } from '@tanstack/react-query';
import { config } from '../../config';
import { failureOf, unreachable, type ApiError, type Schemas } from '../client';
import { downloadUrl, refreshFiles } from './files';
import { queries } from '../queries';
import { sendSignedIn } from '../signIn';

export interface FileContent {
  /**
   * The content of the file, or only its beginning if the file is larger than the requested size.
   */
  bytes: Uint8Array<ArrayBuffer>;
  /** Size of the whole file in bytes. */
  size: number;
  /** Identifies this version of the file. */
  etag: string;
}

const failure = async (response: Response): Promise<ApiError> =>
  failureOf(response, await response.json().catch(() => undefined));

/** Send a request; throw `unreachable()` if the server does not respond. */
const send = (url: string, options: RequestInit) =>
  sendSignedIn(new Request(url, options)).catch((error: unknown) => {
    // A query that was cancelled expects an AbortError.
    throw error instanceof DOMException && error.name === 'AbortError' ? error : unreachable();
  });

const contentUrl = (id: string, path: string) => downloadUrl(id, [{ path, type: 'file' }]);

/** Read at most `maxBytes` of a file. */
async function readContent(
  id: string,
  path: string,
  maxBytes: number,
  signal: AbortSignal
): Promise<FileContent> {
  const response = await send(contentUrl(id, path), {
    signal,
    headers: { Range: `bytes=0-${maxBytes - 1}` }
  });
  const etag = response.headers.get('ETag') ?? '';
  const total = /\/(\d+)$/.exec(response.headers.get('Content-Range') ?? '')?.[1];
  if (response.status === 416 && total === '0') {
    return { bytes: new Uint8Array(), size: 0, etag };
  }
  if (!response.ok) {
    throw await failure(response);
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  return { bytes, size: total === undefined ? bytes.length : Number(total), etag };
}

const contentKey = (id: string, path: string) => ['files', 'content', id, path];

export const contentQuery = (id: string, path: string, maxBytes: number) =>
  queryOptions({
    queryKey: [...contentKey(id, path), maxBytes],
    queryFn: ({ signal }) => readContent(id, path, maxBytes, signal),
    // Do not read again when the window gets the focus: an editor would lose its text.
    staleTime: Infinity,
    gcTime: 0
  });

interface Save {
  id: string;
  path: string;
  text: string;
  /** The version to replace; "new": the file must not exist; "any": replace any version. */
  replaces: string;
}

/**
 * Write a file; fail with the code "changed" if the file does not have the version `replaces`.
 * `onSaved` is called with the new version before the list of files is read again.
 */
export function useSaveFile(onSaved?: (etag: string) => void) {
  return useMutation({
    onSuccess: ({ etag }) => onSaved?.(`"${etag}"`),
    mutationFn: async ({ id, path, text, replaces }: Save) => {
      const precondition: Record<string, string> =
        replaces === 'any'
          ? {}
          : replaces === 'new'
            ? { 'If-None-Match': '*' }
            : { 'If-Match': replaces };
      const response = await send(contentUrl(id, path), {
        method: 'PUT',
        headers: { 'X-XSRFToken': config.xsrfToken, ...precondition },
        body: new Blob([text])
      });
      if (!response.ok) {
        throw await failure(response);
      }
      return (await response.json()) as Schemas['FileEntry'];
    },
    onSettled: (_data, _error, { id }) => refreshFiles(id)
  });
}

/** Discard the cached content of a file; if the file is shown, its content is read again. */
export const forgetContent = (id: string, path: string) =>
  queries.resetQueries({ queryKey: contentKey(id, path) });
