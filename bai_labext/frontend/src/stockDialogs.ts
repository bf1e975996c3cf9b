import { Dialog } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { isTitleOf } from './dialogTitles';

/**
 * Close JupyterLab's error dialogs about kernels and saves that fail because the session has been
 * stopped as announced: a notification says what happened, and the page continues by itself.
 */
export function closeExpectedErrors(
  isExpected: () => boolean,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('jupyterlab');
  const name = '\u0000';
  const titles = [
    trans.__('Error Starting Kernel'),
    trans.__('Kernel Restarting'),
    trans.__('File Save Error for %1', name)
  ];
  Dialog.tracker.widgetAdded.connect((_, dialog) => {
    // The dialog is launched after this signal. One that is not launched cannot be rejected.
    requestAnimationFrame(() => {
      const title = dialog.node.querySelector('.jp-Dialog-header')?.textContent ?? '';
      if (isExpected() && titles.some(template => isTitleOf(template, name, title))) {
        dialog.reject();
      }
    });
  });
}
