import { useSyncExternalStore } from 'react';
import { ApiError } from './client';

/** Whether the page reaches the server, and whether its user is still signed in. */
export interface Connection {
  state: 'online' | 'lost' | 'signed-out';
  /** The API's code for why the account may not sign in; empty if the account may sign in. */
  reason: string;
}

const UNAUTHORIZED = 401;
// Status of a response while the Hub or the database is down.
const UNAVAILABLE = 503;
const ONLINE: Connection = { state: 'online', reason: '' };
const LOST: Connection = { state: 'lost', reason: '' };

const listeners = new Set<() => void>();
let connection = ONLINE;

function set(changed: Connection): void {
  if (changed.state !== connection.state && connection.state !== 'signed-out') {
    connection = changed;
    listeners.forEach(listener => listener());
  }
}

/** Update the state of the connection after a failed request. */
export function reportFailure(error: Error): void {
  if (!(error instanceof ApiError)) {
    return;
  }
  if (error.status === UNAUTHORIZED) {
    set({ state: 'signed-out', reason: error.details.reason ?? '' });
  } else if (error.isUnreachable || error.status === UNAVAILABLE) {
    set(LOST);
  }
}

export const reportSuccess = () => set(ONLINE);

export const currentConnection = () => connection;

/** Call `listener` when the connection changes; returns a function that unsubscribes. */
export function onConnection(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export const useConnection = () => useSyncExternalStore(onConnection, currentConnection);
