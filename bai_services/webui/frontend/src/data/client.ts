import i18next from 'i18next';
import createClient from 'openapi-fetch';
import { config } from '../config';
import { logRequest } from './requestLog';
import { ResponseWatch } from './responseWatch';
import { reasonText } from '../i18n/reasonText';
import type { components, paths } from './schema';
import { sendOnce } from './singleFlight';

export type Schemas = components['schemas'];
export type Session = Schemas['Session'];

interface ErrorDetails {
  /** The field that the message is about. */
  field?: string;
  /** All invalid fields of the request body. */
  problems?: { field: string; problem: string }[];
  /** The action that is not allowed. */
  action?: string;
  /** Why an account is refused, for example "inactive". */
  reason?: string;
  /** The current version of an object that another user has changed. */
  version?: number;
}

/** An error response of the API, or a request without a response (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: ErrorDetails = {},
    /** Whether the message is in the language of the user. */
    readonly isTranslated = false
  ) {
    super(message);
  }

  /** The invalid fields of the request, each with its problem. */
  get problems(): { field: string; problem: string }[] {
    const { problems, field } = this.details;
    return problems ?? (field ? [{ field, problem: this.message }] : []);
  }

  /** Whether the manager could not be reached: no response, or an error response of a proxy. */
  get isUnreachable(): boolean {
    return this.code === UNREACHABLE;
  }
}

const UNREACHABLE = 'unreachable';

export const unreachable = (status = 0) =>
  new ApiError(status, UNREACHABLE, i18next.t('errors.unreachable'));

// Statuses of a proxy that gets no response from the manager. Any other is the manager's.
const PROXY_STATUSES: readonly number[] = [502, 503, 504];
const INTERNAL = 'internal';

interface ErrorBody {
  error?: string;
  message?: string;
  coded?: Schemas['CodedText'] | null;
  details?: ErrorDetails;
}

/** Whether another user has changed an object since the form with it was opened. */
const isOutdated = (error?: string, details?: ErrorDetails) =>
  error === 'conflict' && typeof details?.version === 'number';

/** The error of a response. The body can be a page of the proxy instead of JSON. */
export function failureOf({ status, statusText }: Response, body: unknown): ApiError {
  const { error, message, coded, details } = (
    body !== null && typeof body === 'object' ? body : {}
  ) as ErrorBody;
  if (error === undefined && PROXY_STATUSES.includes(status)) {
    return unreachable(status);
  }
  if (error === INTERNAL || (error === undefined && status >= 500)) {
    return new ApiError(status, INTERNAL, i18next.t('errors.internal'), {}, true);
  }
  const text = isOutdated(error, details)
    ? i18next.t('errors.outdated')
    : coded && message
      ? reasonText(i18next, { message, coded })
      : message;
  const isTranslated = coded !== undefined && coded !== null;
  return new ApiError(status, error ?? `http-${status}`, text ?? statusText, details, isTranslated);
}

/** The typed REST client, authenticated by the browser's cookies. */
export const api = createClient<paths, 'application/json'>({
  baseUrl: config.api,
  fetch: sendOnce,
  headers: { 'X-XSRFToken': config.xsrfToken }
});

// If no response arrives for this time while requests are pending, `onSilence` is called.
const MAX_SILENCE_MILLIS = 3_000;
let reportSilence = () => {};
const responses = new ResponseWatch(MAX_SILENCE_MILLIS, () => reportSilence());

/** Call `listener` when requests are pending and no response has arrived for 3 s. */
export function onSilence(listener: () => void): void {
  reportSilence = listener;
}

const begins = new Map<string, number>();

function log(id: string, { method, url }: Request, status: number): void {
  const { pathname, search } = new URL(url);
  const begin = begins.get(id) ?? performance.now();
  begins.delete(id);
  logRequest({
    at: new Date().toISOString(),
    method,
    path: pathname.replace(config.api, '') + search,
    status,
    millis: Math.round(performance.now() - begin)
  });
}

api.use({
  onRequest({ id }) {
    begins.set(id, performance.now());
    responses.sent();
  },
  onResponse({ id, request, response }) {
    log(id, request, response.status);
    responses.ended(true);
  },
  onError({ id, request }) {
    log(id, request, 0);
    responses.ended(false);
    return unreachable();
  }
});

interface Result<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/**
 * Return the data of a response.
 *
 * @throws ApiError if the response is an error
 */
export async function unwrap<T>(request: Promise<Result<T>>): Promise<T> {
  const { data, error, response } = await request;
  if (response.ok) {
    return data as T;
  }
  throw failureOf(response, error);
}
