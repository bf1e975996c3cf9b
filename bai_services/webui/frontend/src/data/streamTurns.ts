const LOCK = 'bai-hidden-event-stream';

/** A part of `Document`. */
export interface Visibility {
  readonly hidden: boolean;
  addEventListener(type: 'visibilitychange', listener: () => void): void;
}

/** A part of `LockManager`. */
export interface Locks {
  request(
    name: string,
    options: { signal: AbortSignal },
    callback: () => Promise<void>
  ): Promise<unknown>;
}

/**
 * Call `onTurn` when this tab may open its event stream, and when it must close it.
 *
 * A browser opens at most six connections to a server over HTTP/1.1. If every tab had an event
 * stream, six tabs would use all connections, and no tab could load anything. Therefore only
 * visible tabs and one hidden tab, which shows desktop notifications, have an event stream.
 *
 * @param locks undefined if the page has no secure context; then hidden tabs have no stream
 */
export function takeTurns(
  page: Visibility,
  locks: Locks | undefined,
  onTurn: (hasTurn: boolean) => void
): void {
  let hasTurn = false;
  let leave: AbortController | undefined;
  const set = (value: boolean) => {
    if (value !== hasTurn) {
      hasTurn = value;
      onTurn(value);
    }
  };
  const waitHidden = () => {
    const left = new AbortController();
    leave = left;
    locks
      ?.request(LOCK, { signal: left.signal }, () => {
        if (left.signal.aborted) {
          return Promise.resolve();
        }
        set(true);
        // The lock is held until the tab is visible or closed.
        return new Promise(resolve => left.signal.addEventListener('abort', () => resolve()));
      })
      .catch(() => undefined); // the tab became visible while it waited
  };
  const follow = () => {
    leave?.abort();
    leave = undefined;
    if (page.hidden) {
      set(false);
      waitHidden();
    } else {
      set(true);
    }
  };
  page.addEventListener('visibilitychange', follow);
  follow();
}
