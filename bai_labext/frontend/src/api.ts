import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { PreparationState } from './preparation';
import type { AppState, Etags, Log, PollResponse, Session } from './types';

const FORBIDDEN = 403;
const FAILED_DEPENDENCY = 424;

/** Reason why the panel cannot get current data. */
export type Trouble = 'manager' | 'unreachable' | 'ended' | 'signed-out' | 'other';

/** An error response; `message` is for users. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly details: Record<string, unknown> = {}
  ) {
    super(message);
  }

  get trouble(): Trouble {
    switch (this.code) {
      case 'unavailable':
        return 'manager';
      case 'unreachable':
      case 'ended':
      case 'signed-out':
        return this.code;
      default:
        return 'other';
    }
  }
}

/** Client of the session's server (`bai/api`), which calls the manager with the session's token. */
export class Api {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  get baseUrl(): string {
    return this.settings.baseUrl;
  }

  /** Query the sections in `etags`; the response omits a section whose ETag has not changed. */
  poll = (etags: Etags): Promise<PollResponse> =>
    this.call(`poll?${new URLSearchParams(etags).toString()}`);

  rename = (name: string): Promise<Session> => this.call('session', 'PATCH', { name });
  stop = (): Promise<unknown> => this.call('session', 'DELETE');
  stopOther = (id: string): Promise<unknown> => this.call(`sessions/${id}`, 'DELETE');
  appLog = (name: string): Promise<Log> => this.call(`apps/${name}/log`);
  startApp = (name: string, args: Record<string, string>): Promise<{ state: AppState }> =>
    this.call(`apps/${name}`, 'POST', { arguments: args });
  stopApp = (name: string): Promise<{ state: AppState }> => this.call(`apps/${name}`, 'DELETE');

  extend = (seconds: number): Promise<Session> =>
    this.call('session/lifetime', 'POST', { seconds });

  /** Start the windows of the session's idle checkers again. */
  keepAlive = (): Promise<Session> => this.call('session/keep-alive', 'POST');

  /** Report that the session is in use now. */
  reportActivity = (): Promise<unknown> => this.call('session/activity', 'POST');

  /** Whether a stop of the session is ahead, and what was saved before the last one. */
  preparation = (): Promise<PreparationState> => this.call('preparation');
  answerPreparation = (answer: object): Promise<unknown> =>
    this.call('preparation', 'POST', answer);
  dismissPreparation = (): Promise<unknown> => this.call('preparation', 'DELETE');

  log = (kernel: string, mark = '', hasTimes = false): Promise<Log> => {
    const query = new URLSearchParams({ kernel, mark, times: String(hasTimes) });
    return this.call(`session/log?${query.toString()}`);
  };

  texts = (language: string): Promise<{ language: string; texts: Record<string, string> }> =>
    this.call(language ? `texts?lang=${language}` : 'texts');

  private async call<T>(path: string, method = 'GET', body?: unknown): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, 'bai/api', path);
    const init: RequestInit = { method, ...(body ? { body: JSON.stringify(body) } : {}) };
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this.settings);
    } catch {
      throw new ApiError('the session does not respond', 'unreachable');
    }
    const content = (await response.json().catch(() => ({}))) as Record<string, string>;
    if (!response.ok) {
      const message = content.message ?? response.statusText;
      throw new ApiError(message, content.error ?? codeOf(response.status));
    }
    return content as T;
  }
}

/** Error code for a response that contains none: a response of the Hub or of Jupyter Server. */
function codeOf(status: number): string {
  // The Hub responds with this status for a server that is not running.
  if (status === FAILED_DEPENDENCY) {
    return 'ended';
  }
  return status === FORBIDDEN ? 'signed-out' : 'http';
}
