/** Keeps the requests of a user whose sign-in has ended until the user is signed in again. */

const UNAUTHORIZED = 401;

let waiting: (() => void)[] = [];
let reportEnd: () => void = () => undefined;

/** Call `listener` when a response says that the user is no longer signed in. */
export function onSignInEnd(listener: () => void): void {
  reportEnd = listener;
}

/** Send all waiting requests again. */
export function continueRequests(): void {
  const ready = waiting;
  waiting = [];
  ready.forEach(send => send());
}

/**
 * Report that the sign-in has ended; resolve when the user is signed in again.
 *
 * @throws the reason of `signal` if the caller no longer waits
 */
export function nextSignIn(signal?: AbortSignal): Promise<void> {
  reportEnd();
  return new Promise((resolve, reject) => {
    waiting.push(resolve);
    signal?.addEventListener('abort', () => {
      waiting = waiting.filter(other => other !== resolve);
      reject(signal.reason as Error);
    });
  });
}

/**
 * Send a request. If the sign-in has ended, wait for the next one and send the request once more:
 * the server has not executed it.
 *
 * A refusal with a reason is returned, because another sign-in would not help: the account may not
 * be used.
 */
export async function sendSignedIn(request: Request): Promise<Response> {
  const response = await fetch(request.clone());
  if (response.status !== UNAUTHORIZED || (await refusalReason(response.clone())) !== '') {
    return response;
  }
  await nextSignIn(request.signal);
  return fetch(request);
}

/** Return the API's code for why the account may not sign in; empty if it may sign in. */
export async function refusalReason(response: Response): Promise<string> {
  try {
    const { details } = (await response.json()) as { details?: { reason?: string } };
    return details?.reason ?? '';
  } catch {
    return '';
  }
}
