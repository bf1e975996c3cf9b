import type { JupyterFrontEnd } from '@jupyterlab/application';
import { PageConfig } from '@jupyterlab/coreutils';

/**
 * Open the panel at a user's first visit; whether it is open later is theirs.
 *
 * The browser remembers it: settings and workspaces of JupyterLab lie in the home folder, which
 * ends with the session.
 */
export async function openAtFirstVisit(app: JupyterFrontEnd, panelId: string): Promise<void> {
  await app.restored;
  const key = `bai-labext:panel-opened:${PageConfig.getOption('hubUser')}`;
  try {
    if (localStorage.getItem(key) !== null) {
      return;
    }
    localStorage.setItem(key, 'true');
  } catch {
    // A browser that remembers nothing would open it at every visit.
    return;
  }
  app.shell.activateById(panelId);
}
