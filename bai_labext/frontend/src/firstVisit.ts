import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { PageConfig } from '@jupyterlab/coreutils';

import type { SessionPanel } from './panel';

/**
 * Open the panel when a user opens JupyterLab for the first time in this browser.
 *
 * The panel does not wait until JupyterLab is restored: for that, JupyterLab loads the lists of
 * kernels, sessions and terminals, which is slow on a busy machine.
 *
 * The browser stores that the panel was opened, because JupyterLab stores settings and workspaces in
 * the home folder, which is deleted when the session ends.
 */
export async function openAtFirstVisit(
  app: JupyterFrontEnd,
  labShell: ILabShell | null,
  panel: SessionPanel
): Promise<void> {
  await panel.attached;
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
  app.shell.activateById(panel.id);
  const layout = await labShell?.restored;
  if (layout?.rightArea) {
    // Open the panel again: the layout of an earlier visit with another browser has replaced it.
    app.shell.activateById(panel.id);
  }
}
