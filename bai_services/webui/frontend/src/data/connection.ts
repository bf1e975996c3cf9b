import { useSyncExternalStore } from 'react';
import { ApiError } from './client';
import { continueRequests, onSignInEnd } from './signIn';

/** Whether the page reaches the server, and whether its user is still signed in. */
export interface Connection {
  state: 'online' | 'lost' | 'signed-out';
  /**
   * Why the page cannot continue after a sign-out: the API's code for why the account may not sign
   * in, or `OTHER_USER`. Empty: the page continues when its user signs in again.
   */
  reason: string;
}

/** Another user has signed in. */
export const OTHER_USER = 'other-user';
const UNAUTHORIZED = 401;
// Status of a response while the Hub or the database is down.
const UNAVAILABLE = 503;
const ONLINE: Connection = { state: 'online', reason: '' };
const LOST: Connection = { state: 'lost', reason: '' };
const SIGNED_OUT: Connection = { state: 'signed-out', reason: '' };

const listeners = new Set<() => void>();
let connection = ONLINE;

function set(changed: Connection): void {
  connection = changed;
  listeners.forEach(listener => listener());
}

/** Change the state, unless the user is signed out: only a new sign-in can change that. */
function setSignedIn(changed: Connection): void {
  if (changed.state !== connection.state && connection.state !== 'signed-out') {
    set(changed);
  }
}

/** Record that the user is signed out; see `Connection` for the reason. */
export function reportSignOut(reason: string): void {
  if (connection.reason === '' && (connection.state !== 'signed-out' || reason !== '')) {
    set({ ...SIGNED_OUT, reason });
  }
}

/** Record that the user of the page has signed in again; send the requests that wait for this. */
export function reportSignIn(): void {
  if (connection.state === 'signed-out' && connection.reason === '') {
    set(ONLINE);
    continueRequests();
  }
}

onSignInEnd(() => reportSignOut(''));

const isOutage = (error: ApiError) => error.isUnreachable || error.status === UNAVAILABLE;

/**
 * Whether the error of a query is shown instead of its data. During an outage, a page keeps the
 * data and the input that it has; `ConnectionNotice` reports the outage.
 */
export const replacesData = (error: Error | null, data: unknown): error is Error =>
  error !== null && !(data !== undefined && error instanceof ApiError && isOutage(error));

/** Update the state of the connection after a failed request. */
export function reportFailure(error: Error): void {
  if (!(error instanceof ApiError)) {
    return;
  }
  if (error.status === UNAUTHORIZED) {
    reportSignOut(error.details.reason ?? '');
  } else if (isOutage(error)) {
    setSignedIn(LOST);
  }
}

export const reportSuccess = () => setSignedIn(ONLINE);

export const currentConnection = () => connection;

/** Call `listener` when the connection changes; returns a function that unsubscribes. */
export function onConnection(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export const useConnection = () => useSyncExternalStore(onConnection, currentConnection);
