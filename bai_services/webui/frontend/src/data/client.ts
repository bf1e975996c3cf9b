import createClient from 'openapi-fetch';
import { config } from '../config';
import { logRequest } from './requestLog';
import type { components, paths } from './schema';
import { markSignedOut } from './signedOut';

export type Schemas = components['schemas'];
export type Session = Schemas['Session'];

interface ErrorDetails {
  /** The field that the message is about. */
  field?: string;
  /** All invalid fields of the request body. */
  problems?: { field: string; problem: string }[];
}

/** An error response of the API, or a request without a response (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: ErrorDetails = {}
  ) {
    super(message);
  }
}

/** The typed REST client, authenticated by the browser's cookies. */
export const api = createClient<paths, 'application/json'>({
  baseUrl: config.api,
  headers: { 'X-XSRFToken': config.xsrfToken }
});

const UNAUTHORIZED = 401;

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
  },
  onResponse({ id, request, response }) {
    log(id, request, response.status);
    if (response.status === UNAUTHORIZED) {
      markSignedOut();
    }
  },
  onError({ id, request, error }) {
    log(id, request, 0);
    return new ApiError(0, 'unreachable', error instanceof Error ? error.message : '');
  }
});

interface Result<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return the data of a response.
 *
 * @throws ApiError if the response is an error
 */
export async function unwrap<T>(request: Promise<Result<T>>): Promise<T> {
  const { data, error, response } = await request;
  if (response.ok) {
    return data as T;
  }
  const body = (error ?? {}) as {
    error?: string;
    message?: string;
    details?: ErrorDetails;
  };
  throw new ApiError(
    response.status,
    body.error ?? `http-${response.status}`,
    body.message ?? response.statusText,
    body.details
  );
}
