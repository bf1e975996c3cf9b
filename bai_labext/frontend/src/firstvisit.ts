import type { JupyterFrontEnd } from '@jupyterlab/application';
import { PageConfig } from '@jupyterlab/coreutils';

/**
 * Open the panel at a user's first visit with this browser.
 *
 * The visit is stored in the browser, because JupyterLab stores settings and workspaces in the home
 * folder, which is deleted when the session ends.
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
    // Without local storage the panel would open at every visit, so do not open it.
    return;
  }
  app.shell.activateById(panelId);
}
