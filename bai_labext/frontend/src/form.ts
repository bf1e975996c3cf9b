import { ReactWidget } from '@jupyterlab/apputils';
import type { Message } from '@lumino/messaging';

const FIELDS = 'input, select, button, a[href]';

/**
 * Dialog body that is accessible by keyboard and screen reader.
 *
 * A JupyterLab dialog has no accessible name. It determines its first field when it opens, so Tab
 * would never reach fields that are rendered later.
 */
export abstract class Form extends ReactWidget {
  constructor(private readonly name: string) {
    super();
    this.addClass('bai-Form');
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    // If there is a promise, the dialog waits for it and moves the focus to its button when the
    // browser is idle. On a slow machine the user may already be typing in the form by then.
    delete this.renderPromise;
    const dialog = this.node.closest<HTMLElement>('.jp-Dialog');
    dialog?.setAttribute('aria-label', this.name);
    // In the capture phase, because the dialog's own listener stops the event there.
    dialog?.addEventListener('keydown', this.leaveButtons, true);
  }

  /** Move the focus from the dialog's last button to the current first field. */
  private readonly leaveButtons = (event: KeyboardEvent): void => {
    if (event.key !== 'Tab' || event.shiftKey) {
      return;
    }
    const buttons = this.node.closest('.jp-Dialog')?.querySelectorAll('.jp-Dialog-button');
    if (event.target === buttons?.item(buttons.length - 1)) {
      event.preventDefault();
      this.node.querySelector<HTMLElement>(FIELDS)?.focus();
    }
  };
}
