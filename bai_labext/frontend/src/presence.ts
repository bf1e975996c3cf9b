import type { Api } from './api';

const INTERVAL_MILLISECONDS = 60_000;

/** Report the user's keyboard and pointer activity to the session, at most once a minute. */
export function reportPresence(api: Api): void {
  let reportedAt = 0;
  const report = (): void => {
    if (Date.now() - reportedAt >= INTERVAL_MILLISECONDS) {
      reportedAt = Date.now();
      // Ignore errors: the panel shows if the session or the manager does not respond.
      api.reportActivity().catch(() => undefined);
    }
  };
  for (const type of ['keydown', 'pointerdown', 'wheel']) {
    document.addEventListener(type, report, { capture: true, passive: true });
  }
}
