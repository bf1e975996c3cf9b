import { config } from '../config';
import { onSilence, unreachable } from './client';
import { currentConnection, reportFailure, reportSuccess } from './connection';
import { meQuery } from './accounts/me';
import { queries } from './queries';
import { takeTurns } from './streamTurns';

const MAX_RETRY_MILLIS = 10_000;
// The server sends an event at least every 10 s. If the server is gone, the proxy keeps the
// connection of the browser open, so the browser reports no error.
const MAX_SILENCE_MILLIS = 15_000;
const MAX_RESPONSE_MILLIS = 10_000;
// Timeout of the check whether the server still responds while requests have no response.
const MAX_PROBE_MILLIS = 2_000;
const RECHECK_MILLIS = 3_000;
const FIRST_RETRY_MILLIS = 1_000;
// Throttle interval: a change and all changes within this time after it cause one refresh.
const THROTTLE_MILLIS = 150;

export interface Change {
  kind: string;
  session_id: string;
  status: string;
  /** The id of the user who owns the session. */
  owner_id: string;
  folder_id: string;
}

type Listener = (change: Change) => void;
const listeners = new Set<Listener>();

/** Call `listener` for every change of a session; returns a function that unsubscribes. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

let timer: number | undefined;

// Later changes do not restart the timer: a steady stream must not delay the refresh.
function refreshSessions(): void {
  timer ??= window.setTimeout(() => {
    timer = undefined;
    void queries.invalidateQueries({ queryKey: ['sessions'] });
  }, THROTTLE_MILLIS);
}

let retryMillis = FIRST_RETRY_MILLIS;
let retryTimer: number | undefined;
let isWanted = false;
let closeStream: () => void = () => undefined;

/** Subscribe to changes of sessions, folders and permissions, which invalidate cached queries. */
export function followChanges(): void {
  takeTurns(document, navigator.locks, hasTurn => {
    isWanted = hasTurn;
    if (hasTurn) {
      open();
      // The stream does not send the changes that were made while it was closed.
      void queries.invalidateQueries({ predicate: isNoFileContent });
    } else {
      closeStream();
      window.clearTimeout(retryTimer);
      retryTimer = undefined;
    }
  });
  onSilence(() => void checkAccess(MAX_PROBE_MILLIS));
  window.addEventListener('online', retryConnection);
  window.addEventListener('offline', checkOffline);
  if (!navigator.onLine) {
    checkOffline();
  }
}

/**
 * Find out whether the server responds although the browser is offline: it may run on this machine.
 * A request just after the event may still succeed, so the check is repeated.
 */
function checkOffline(): void {
  void checkAccess(MAX_PROBE_MILLIS);
  window.setTimeout(() => {
    if (!navigator.onLine) {
      void checkAccess(MAX_PROBE_MILLIS);
    }
  }, RECHECK_MILLIS);
}

/** Open the event stream at once instead of after the current delay. */
export function retryConnection(): void {
  if (retryTimer !== undefined) {
    window.clearTimeout(retryTimer);
    void reopen();
  } else {
    // No retry is due, so the stream may still be open: only check the connection.
    void checkAccess();
  }
}

const refreshNotifications = () =>
  void queries.invalidateQueries({ queryKey: ['entities', '/notifications'] });

const refreshInvitations = () =>
  void queries.invalidateQueries({ queryKey: ['folders', 'invitations'] });

function open(): void {
  const source = new EventSource(`${config.api}/events`);
  let silenceTimer = 0;
  closeStream = () => {
    source.close();
    window.clearTimeout(silenceTimer);
  };
  const end = () => {
    closeStream();
    retryTimer = window.setTimeout(() => void reopen(), retryMillis);
    retryMillis = Math.min(retryMillis * 2, MAX_RETRY_MILLIS);
    // Find out why: the event stream does not report the reason of its end.
    void checkAccess();
  };
  const restartSilence = () => {
    window.clearTimeout(silenceTimer);
    silenceTimer = window.setTimeout(end, MAX_SILENCE_MILLIS);
  };
  const on = (kind: string, listener: (event: MessageEvent<string>) => void) =>
    source.addEventListener(kind, event => {
      restartSilence();
      listener(event as MessageEvent<string>);
    });

  restartSilence();
  source.onerror = end;
  source.onopen = () => {
    restartSilence();
    retryMillis = FIRST_RETRY_MILLIS;
    // The stream does not send the changes that were made before it was opened. The refresh is not
    // delayed, because it would then repeat the requests of a page that is loaded meanwhile.
    void queries.invalidateQueries({ queryKey: ['sessions'] });
    refreshNotifications();
    refreshInvitations();
  };
  on('keepalive', () => {
    // Check a connection that counts as lost because another request has failed. This stream has
    // not ended, so nothing else would retry.
    if (currentConnection().state === 'lost') {
      void checkAccess();
    }
  });
  on('notification', () => {
    refreshNotifications();
    // Refresh sessions, too: a notification can announce the stop of a session, for which there is
    // no other event.
    refreshSessions();
  });
  on('invitation', refreshInvitations);
  on('folder', () => {
    void queries.invalidateQueries({ queryKey: ['folders'] });
    void queries.invalidateQueries({ queryKey: ['files'], predicate: isListing });
    // Also refresh the dashboard: it shows the usage of storage, which can change with the folder.
    void queries.invalidateQueries({ queryKey: ['sessions', 'dashboard'] });
  });
  on('files', event => {
    const { folder_id: id } = JSON.parse(event.data) as Change;
    void queries.invalidateQueries({ queryKey: ['files', id] });
  });
  on('account', () => {
    void queries.invalidateQueries({ queryKey: meQuery.queryKey });
  });
  // The permissions of the user have changed, so any response can differ now.
  on('access', () => void queries.invalidateQueries());
  for (const kind of ['status', 'reasons', 'position', 'progress', 'name']) {
    on(kind, event => {
      const change = JSON.parse(event.data) as Change;
      listeners.forEach(listener => listener(change));
      refreshSessions();
    });
  }
}

// The content of a file is not loaded again, because an open editor must keep its text.
const isListing = ({ queryKey }: { queryKey: readonly unknown[] }) => queryKey[1] !== 'content';
export const isNoFileContent = ({ queryKey }: { queryKey: readonly unknown[] }) =>
  queryKey[0] !== 'files' || isListing({ queryKey });

async function reopen(): Promise<void> {
  retryTimer = undefined;
  await checkAccess();
  const { state } = currentConnection();
  if (!isWanted) {
    return;
  }
  if (state === 'online') {
    open();
  } else if (state === 'lost') {
    retryTimer = window.setTimeout(() => void reopen(), retryMillis);
    retryMillis = Math.min(retryMillis * 2, MAX_RETRY_MILLIS);
  }
}

/** Find out whether the server responds, and whether the user is still signed in. */
export async function checkAccess(maxMillis = MAX_RESPONSE_MILLIS): Promise<void> {
  const timeout = window.setTimeout(() => reportFailure(unreachable()), maxMillis);
  try {
    await queries.query({ ...meQuery, staleTime: 0, retry: false });
  } catch {
    return; // the cache has reported the failure
  } finally {
    window.clearTimeout(timeout);
  }
  const wasLost = currentConnection().state === 'lost';
  reportSuccess();
  if (wasLost) {
    await queries.invalidateQueries({ predicate: isNoFileContent });
  }
}
