import type { Api } from './api';

const PAUSE_MS = 60_000;

/** Tells the session that somebody is at work in its page: by what they do, once a minute. */
export function tellOfPresence(api: Api): void {
  let toldAt = 0;
  const tell = (): void => {
    if (Date.now() - toldAt >= PAUSE_MS) {
      toldAt = Date.now();
      // The panel says what does not answer.
      api.atWork().catch(() => undefined);
    }
  };
  for (const doing of ['keydown', 'pointerdown', 'wheel']) {
    document.addEventListener(doing, tell, { capture: true, passive: true });
  }
}
