import i18next from 'i18next';
import { api, ApiError, unreachable, unwrap } from '../../client';
import { refreshEndpoints, type Endpoint } from '../endpoints';
import { answerPartOf, errorOf, modelsOf, type AnswerPart } from './completion';
import { EventParser } from './eventStream';

/**
 * Age at which a token is replaced. Tokens are valid for twice this time, because the expiry of a
 * token would also end an answer in progress.
 */
const MAX_AGE_MILLIS = 10 * 60_000;
/** Maximum time until all gateways accept a new token. */
const SETTLE_MILLIS = 8_000;
const PAUSE_MILLIS = 200;
/** Maximum number of characters of a response that is read as a whole. */
const MAX_BODY = 1_000_000;

interface ChatToken {
  token: string;
  /** Time of its creation, as `performance.now()`. */
  createdAt: number;
}

type Called = Pick<Endpoint, 'id' | 'path'>;

/** Tokens by endpoint. They are only in memory. */
const tokens = new Map<string, Promise<ChatToken>>();

async function createToken(id: string): Promise<ChatToken> {
  const params = { path: { key: id } };
  const { token } = await unwrap(api.POST('/endpoints/{key}/chat-token', { params }));
  return { token, createdAt: performance.now() };
}

const ageOf = ({ createdAt }: ChatToken) => performance.now() - createdAt;

/** The token for an endpoint, shared by all cards. */
function tokenOf(id: string): Promise<ChatToken> {
  const create = () => createToken(id);
  const known = tokens.get(id);
  const token = known
    ? known.then(found => (ageOf(found) < MAX_AGE_MILLIS ? found : create()), create)
    : create();
  tokens.set(id, token);
  return token;
}

/**
 * The URL of a path below an endpoint, always at the host of this page: the content security policy
 * permits no other host, not even the endpoint's own host name.
 *
 * @throws ApiError if the URL is not below the endpoint: the token must not reach another server
 */
export function urlOfPath(endpoint: Pick<Endpoint, 'path'>, path: string): string {
  const base = new URL(endpoint.path, location.href);
  const address = new URL(path.replace(/^\/+/, ''), base);
  if (base.origin !== location.origin || !address.href.startsWith(base.href)) {
    throw new ApiError(0, 'invalid-path', path);
  }
  return address.href;
}

const pause = (signal: AbortSignal) =>
  new Promise<void>((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', end);
      resolve();
    }, PAUSE_MILLIS);
    signal.addEventListener('abort', end, { once: true });
  });

const INCOMPLETE = 'incomplete';

/** The error of an answer whose end is missing, for example because its replica has ended. */
const incomplete = () => new ApiError(0, INCOMPLETE, i18next.t('chat.incomplete'));

/** Whether an endpoint is being deleted or was deleted, or the user may no longer use it. */
async function isGone({ id }: Called): Promise<boolean> {
  const params = { path: { key: id } };
  try {
    return (await unwrap(api.GET('/endpoints/{key}', { params }))).status === 'stopping';
  } catch (error) {
    return error instanceof ApiError && error.status === 404;
  }
}

interface CallInit {
  method?: string;
  body?: string;
  headers?: Record<string, string>;
}

/**
 * Call an endpoint with a token of the chat page.
 *
 * @throws ApiError if there is no response, or it is an error
 */
async function call(endpoint: Called, path: string, init: CallInit, signal: AbortSignal) {
  const url = urlOfPath(endpoint, path);
  let token = await tokenOf(endpoint.id);
  let isRenewed = false;
  for (;;) {
    const response = await fetch(url, {
      ...init,
      signal,
      headers: { ...init.headers, Authorization: `Bearer ${token.token}` },
      // A response of a model server must not redirect to another URL.
      redirect: 'manual',
      credentials: 'omit',
      cache: 'no-store',
      referrerPolicy: 'no-referrer'
    }).catch((error: unknown) => {
      throw signal.aborted ? error : unreachable();
    });
    if (response.ok) {
      return response;
    }
    if (response.type === 'opaqueredirect') {
      throw new ApiError(0, 'endpoint', i18next.t('chat.redirects'));
    }
    const body = await boundedText(response);
    if (response.status !== 401) {
      const message = errorOf(body) ?? `${response.status} ${response.statusText}`.trim();
      throw new ApiError(response.status, 'endpoint', message);
    }
    if (ageOf(token) < SETTLE_MILLIS) {
      await pause(signal);
    } else if (!isRenewed) {
      // Renew the token once. It may be older than `ageOf` says, because the clock of the page
      // stops while the computer sleeps.
      tokens.delete(endpoint.id);
      token = await tokenOf(endpoint.id);
      isRenewed = true;
    } else {
      throw new ApiError(401, 'endpoint', errorOf(body) ?? response.statusText);
    }
  }
}

/**
 * The pieces of a response as text.
 *
 * @throws ApiError if the connection ends before the response
 */
async function* piecesOf(response: Response, signal?: AbortSignal): AsyncGenerator<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const read = await reader?.read().catch((error: unknown) => {
        throw signal?.aborted ? error : incomplete();
      });
      if (!read || read.done) {
        return;
      }
      yield decoder.decode(read.value, { stream: true });
    }
  } finally {
    void reader?.cancel().catch(() => undefined);
  }
}

/** The beginning of a response as text. */
async function boundedText(response: Response): Promise<string> {
  let text = '';
  for await (const piece of piecesOf(response)) {
    text += piece;
    if (text.length > MAX_BODY) {
      break;
    }
  }
  return text.slice(0, MAX_BODY);
}

/**
 * The names of the models of an endpoint.
 *
 * @throws ApiError if the endpoint does not respond with a list of models
 */
export async function readModels(
  endpoint: Called,
  basePath: string,
  signal: AbortSignal
): Promise<string[]> {
  const response = await call(endpoint, `${basePath}/models`, {}, signal);
  const models = modelsOf(await boundedText(response));
  if (models === undefined) {
    throw new ApiError(response.status, 'no-models', '');
  }
  return models;
}

/**
 * Send messages to a model and yield the parts of its answer as they arrive.
 *
 * @throws ApiError if there is no answer, or it is incomplete; the message gives the reason
 */
export async function* streamAnswer(
  endpoint: Called,
  basePath: string,
  body: object,
  signal: AbortSignal
): AsyncGenerator<AnswerPart> {
  try {
    yield* partsOf(endpoint, basePath, body, signal);
  } catch (error) {
    if (error instanceof ApiError && error.code === INCOMPLETE && (await isGone(endpoint))) {
      void refreshEndpoints();
      throw new ApiError(0, INCOMPLETE, i18next.t('chat.endpoint-gone'));
    }
    throw error;
  }
}

async function* partsOf(
  endpoint: Called,
  basePath: string,
  body: object,
  signal: AbortSignal
): AsyncGenerator<AnswerPart> {
  const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
  const init = { method: 'POST', body: JSON.stringify(body), headers };
  const response = await call(endpoint, `${basePath}/chat/completions`, init, signal);
  if (!response.headers.get('Content-Type')?.startsWith('text/event-stream')) {
    yield answerPartOf(await boundedText(response));
    return;
  }
  const parser = new EventParser();
  let isComplete = false;
  for await (const piece of piecesOf(response, signal)) {
    for (const event of parser.push(piece)) {
      const part = answerPartOf(event);
      isComplete ||= part.isComplete === true;
      yield part;
      if (part.isLast) {
        return;
      }
    }
  }
  if (!isComplete) {
    throw incomplete();
  }
}
