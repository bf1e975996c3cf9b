import type { Api } from './api';

const PAUSE_MS = 60_000;

/**
 * Report that the user is active in the session's page, at most once a minute.
 */
export function tellOfPresence(api: Api): void {
  let toldAt = 0;
  const tell = (): void => {
    if (Date.now() - toldAt >= PAUSE_MS) {
      toldAt = Date.now();
      // The panel shows what does not answer.
      api.atWork().catch(() => undefined);
    }
  };
  for (const doing of ['keydown', 'pointerdown', 'wheel']) {
    document.addEventListener(doing, tell, { capture: true, passive: true });
  }
}
