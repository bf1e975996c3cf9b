import type { JupyterFrontEnd } from '@jupyterlab/application';
import { PageConfig } from '@jupyterlab/coreutils';

/**
 * Open the panel when a user opens JupyterLab for the first time in this browser.
 *
 * The browser stores that the panel was opened, because JupyterLab stores settings and workspaces in
 * the home folder, which is deleted when the session ends.
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
    // Without local storage the panel would open every time, so do not open it.
    return;
  }
  app.shell.activateById(panelId);
}
