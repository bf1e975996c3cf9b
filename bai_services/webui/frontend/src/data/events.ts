import { config } from '../config';
import { meQuery } from './me';
import { queries } from './queries';

const MAX_RETRY_MILLIS = 30_000;
const FIRST_RETRY_MILLIS = 1_000;
// Debounce interval: changes within this time cause one request.
const DEBOUNCE_MILLIS = 150;

interface Change {
  kind: string;
  session_id: string;
  status: string;
}

type Listener = (change: Change) => void;
const listeners = new Set<Listener>();

/** Call `listener` for every change of a session; returns a function that unsubscribes. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Subscribe to changes of sessions, and invalidate the affected queries. */
export function followChanges(): void {
  let retryMillis = FIRST_RETRY_MILLIS;
  let timer: number | undefined;
  // Later changes do not restart the timer: a steady stream must not delay the refresh.
  const refresh = () => {
    timer ??= window.setTimeout(() => {
      timer = undefined;
      void queries.invalidateQueries({ queryKey: ['sessions'] });
    }, DEBOUNCE_MILLIS);
  };
  const open = () => {
    const source = new EventSource(`${config.api}/events`);
    source.onopen = () => {
      retryMillis = FIRST_RETRY_MILLIS;
      // Changes may have been missed between the loading of the list and the start of the stream.
      refresh();
    };
    source.onerror = () => {
      source.close();
      // If the sign-in has ended, the server closes the stream; this request shows it.
      void queries.invalidateQueries({ queryKey: meQuery.queryKey });
      window.setTimeout(open, retryMillis);
      retryMillis = Math.min(retryMillis * 2, MAX_RETRY_MILLIS);
    };
    source.addEventListener('invitation', () => {
      void queries.invalidateQueries({ queryKey: ['folders', 'invitations'] });
    });
    for (const kind of ['status', 'reasons', 'position', 'progress', 'name']) {
      source.addEventListener(kind, event => {
        const change = JSON.parse((event as MessageEvent<string>).data) as Change;
        listeners.forEach(listener => listener(change));
        refresh();
      });
    }
  };
  open();
}
