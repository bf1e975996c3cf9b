import { ApiError } from './api';

const WAIT_MILLISECONDS = 300_000;
const LOOK_MILLISECONDS = 500;
/**
 * Meaning of statuses whose answers have no body: HEAD, and the proxy's own.
 */
const CODES: Record<number, string> = {
  401: 'not-signed-in',
  404: 'not-found',
  502: 'unavailable',
  503: 'unavailable'
};
const WINDOW = 'popup,width=560,height=640';

interface Refusal {
  message?: string;
  error?: string;
  details?: Record<string, unknown>;
}

/** The message from the sign-in window. */
interface Answer {
  bai: string;
  code: string;
  state: string;
}

/**
 * The person at the browser, to the manager: what a session itself may not do.
 *
 * They say so once per page, in a window of the manager. The token stays in this object and is
 * withdrawn with the page.
 */
export class Person {
  private token = '';

  /** `base` is the path of the manager at the Hub: `/services/bai`. */
  constructor(private readonly base: () => string) {
    window.addEventListener('pagehide', () => this.forget());
  }

  get isAllowed(): boolean {
    return this.token !== '';
  }

  /** Whether this page can ask: digests need a page loaded over HTTPS. */
  get canAsk(): boolean {
    return window.isSecureContext && this.base() !== '';
  }

  /**
   * Ask the user; must be called while a click is handled, or the browser
   * blocks the window.
   */
  async allow(): Promise<boolean> {
    const verifier = random(48);
    const state = random(18);
    const opened = window.open('', '_blank', WINDOW);
    if (!opened) {
      throw new ApiError('the browser did not open the window', 'blocked');
    }
    const query = new URLSearchParams({ challenge: await challenge(verifier), state });
    opened.location.href = `${this.base()}/panel-login?${query.toString()}`;
    const code = await answer(opened, state);
    if (!code) {
      return false;
    }
    const redeemed = await this.fetched('/auth/code/redeem', {
      method: 'POST',
      body: JSON.stringify({ code, verifier })
    });
    this.token = ((await redeemed.json()) as { token: string }).token;
    return true;
  }

  get = <T>(path: string): Promise<T> => this.json<T>(path, { method: 'GET' });
  post = <T>(path: string, body: unknown): Promise<T> =>
    this.json<T>(path, { method: 'POST', body: JSON.stringify(body) });
  put = <T>(path: string, body: unknown): Promise<T> =>
    this.json<T>(path, { method: 'PUT', body: JSON.stringify(body) });
  delete = (path: string): Promise<Response> => this.fetched(path, { method: 'DELETE' });

  /** The address of an API path, and the headers that identify the user. */
  url(path: string): string {
    return path.startsWith(`${this.base()}/`) ? path : `${this.base()}/api/v1${path}`;
  }

  get headers(): Record<string, string> {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** Forget a token that the manager refused: it has expired or was revoked. */
  expired(): void {
    this.token = '';
  }

  async fetched(path: string, init: RequestInit): Promise<Response> {
    let response: Response;
    try {
      // Without the cookie: only the token in the header grants permission.
      response = await fetch(this.url(path), {
        ...init,
        credentials: 'omit',
        headers: { ...this.headers, ...(init.headers as Record<string, string> | undefined) }
      });
    } catch {
      throw new ApiError('the resource manager cannot be reached', 'unavailable');
    }
    if (response.ok) {
      return response;
    }
    if (response.status === 401) {
      this.expired();
    }
    const content = (await response.json().catch(() => ({}))) as Refusal;
    throw new ApiError(
      content.message ?? response.statusText,
      content.error ?? CODES[response.status] ?? 'http',
      content.details
    );
  }

  private async json<T>(path: string, init: RequestInit): Promise<T> {
    return (await (await this.fetched(path, init)).json()) as T;
  }

  private forget(): void {
    if (this.token) {
      const init: RequestInit = { method: 'DELETE', credentials: 'omit', keepalive: true };
      void fetch(this.url('/auth/token'), { ...init, headers: this.headers });
      this.token = '';
    }
  }
}

/** Wait for the window's message; empty if the user closes it. */
function answer(opened: Window, state: string): Promise<string> {
  return new Promise(resolve => {
    const end = (code: string): void => {
      window.removeEventListener('message', listen);
      clearInterval(looking);
      clearTimeout(patience);
      resolve(code);
    };
    const listen = (event: MessageEvent): void => {
      const found = event.data as Partial<Answer> | null;
      const isOurs = event.origin === window.location.origin && event.source === opened;
      if (isOurs && found?.bai === 'panel-login' && found.state === state) {
        // Closed here, because a message of a window that closes itself may be
        // lost.
        opened.close();
        end(found.code ?? '');
      }
    };
    const looking = setInterval(() => {
      if (opened.closed) {
        // The message may still be on its way.
        setTimeout(() => end(''), LOOK_MILLISECONDS);
      }
    }, LOOK_MILLISECONDS);
    const patience = setTimeout(() => end(''), WAIT_MILLISECONDS);
    window.addEventListener('message', listen);
  });
}

function random(bytes: number): string {
  return base64url(crypto.getRandomValues(new Uint8Array(bytes)));
}

async function challenge(verifier: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier));
  return base64url(new Uint8Array(digest));
}

function base64url(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}
