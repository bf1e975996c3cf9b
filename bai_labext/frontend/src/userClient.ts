import { ApiError } from './api';

const CONSENT_TIMEOUT_MILLISECONDS = 300_000;
/** Error codes for responses without a JSON body: responses to HEAD and responses of the proxy. */
const CODES: Record<number, string> = {
  401: 'not-signed-in',
  404: 'not-found',
  502: 'unavailable',
  503: 'unavailable'
};
const WINDOW_FEATURES = 'popup,width=560,height=640';

interface ErrorBody {
  message?: string;
  error?: string;
  details?: Record<string, unknown>;
}

/**
 * Channel on which the consent window sends the code. Every page of the origin can read it, but
 * only the page with the verifier can use the code.
 */
const CHANNEL = 'bai-panel-login';

/** Message of the consent window; `code` is empty if the user refuses. */
interface ConsentMessage {
  code: string;
  state: string;
}

/**
 * Client of the manager with the permissions of the user, for operations that the session's own
 * token does not permit.
 *
 * The user consents in a window with a page of the manager. The token is stored only in this object
 * and is revoked when the JupyterLab page is closed.
 */
export class UserClient {
  private token = '';

  /** `base` returns the path of the manager at the Hub, such as `/services/bai`. */
  constructor(private readonly base: () => string) {
    window.addEventListener('pagehide', () => this.revoke());
  }

  get hasToken(): boolean {
    return this.token !== '';
  }

  /** Whether consent can be requested: browsers compute the digest only in a secure context. */
  get canRequestConsent(): boolean {
    return window.isSecureContext && this.base() !== '';
  }

  /** Request consent. Call this in a click handler; otherwise the browser blocks the window. */
  async requestConsent(): Promise<boolean> {
    const verifier = random(48);
    const state = random(18);
    const opened = window.open('', '_blank', WINDOW_FEATURES);
    if (!opened) {
      throw new ApiError('the browser did not open the window', 'blocked');
    }
    const query = new URLSearchParams({ challenge: await challenge(verifier), state });
    opened.location.href = `${this.base()}/panel-login?${query.toString()}`;
    const code = await waitForCode(state);
    if (!code) {
      return false;
    }
    const redeemed = await this.request('/auth/code/redeem', {
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
  delete = (path: string): Promise<Response> => this.request(path, { method: 'DELETE' });

  /** URL of a path of the API; URLs from responses are returned unchanged. */
  url(path: string): string {
    return path.startsWith(`${this.base()}/`) ? path : `${this.base()}/api/v1${path}`;
  }

  /** Headers that authorize a request. */
  get headers(): Record<string, string> {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** Discard a token that the manager has rejected, because it has expired or was revoked. */
  discardToken(): void {
    this.token = '';
  }

  async request(path: string, init: RequestInit): Promise<Response> {
    let response: Response;
    try {
      // Omit cookies, so that only the token authorizes the request.
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
      this.discardToken();
    }
    const content = (await response.json().catch(() => ({}))) as ErrorBody;
    throw new ApiError(
      content.message ?? response.statusText,
      content.error ?? CODES[response.status] ?? 'http',
      content.details
    );
  }

  private async json<T>(path: string, init: RequestInit): Promise<T> {
    return (await (await this.request(path, init)).json()) as T;
  }

  private revoke(): void {
    if (this.token) {
      const init: RequestInit = { method: 'DELETE', credentials: 'omit', keepalive: true };
      void fetch(this.url('/auth/token'), { ...init, headers: this.headers });
      this.token = '';
    }
  }
}

/**
 * Wait for the code; resolve with an empty string if the user refuses or does not respond. The code
 * comes over a channel, because this page and the window have no reference to each other (COOP).
 * Therefore this page cannot press the button of the window.
 */
function waitForCode(state: string): Promise<string> {
  return new Promise(resolve => {
    const channel = new BroadcastChannel(CHANNEL);
    const end = (code: string): void => {
      channel.close();
      clearTimeout(timeout);
      resolve(code);
    };
    const timeout = setTimeout(() => end(''), CONSENT_TIMEOUT_MILLISECONDS);
    channel.addEventListener('message', (event: MessageEvent) => {
      const message = event.data as Partial<ConsentMessage> | null;
      if (message?.state === state && typeof message.code === 'string') {
        // The window closes when it receives the confirmation.
        channel.postMessage({ received: state });
        end(message.code);
      }
    });
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
