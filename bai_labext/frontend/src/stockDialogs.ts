import { Dialog } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { isTitleOf } from './dialogTitles';

/** Number of frames in which the title of a dialog must be rendered. */
const MAX_FRAMES = 60;

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
  const check = (dialog: Dialog<unknown>, frames = MAX_FRAMES): void => {
    const title = dialog.node.querySelector('.jp-Dialog-header')?.textContent ?? '';
    if (title === '' && frames > 0 && !dialog.isDisposed) {
      // The title is rendered after the launch, which waits for the dialogs before it.
      requestAnimationFrame(() => check(dialog, dialog.isAttached ? frames - 1 : frames));
    } else if (isExpected() && titles.some(template => isTitleOf(template, name, title))) {
      dialog.reject();
    }
  };
  Dialog.tracker.widgetAdded.connect((_, dialog) => check(dialog as Dialog<unknown>));
}
