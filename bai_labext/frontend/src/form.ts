import { ReactWidget } from '@jupyterlab/apputils';
import type { Message } from '@lumino/messaging';

const FIELDS = 'input, select, button, a[href]';

/**
 * The body of a dialog that is accessible by keyboard and screen reader.
 *
 * JupyterLab gives a dialog a title but no name. It looks for the first field once, when the dialog
 * opens: a form that renders its fields later, or anew, would never get the focus from Tab.
 */
export abstract class Form extends ReactWidget {
  constructor(private readonly name: string) {
    super();
    this.addClass('bai-Form');
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    // With a promise to wait for, the dialog focuses its button in the next idle period. On a busy
    // machine that would take the focus from a user who already fills in the form.
    delete this.renderPromise;
    const dialog = this.node.closest<HTMLElement>('.jp-Dialog');
    dialog?.setAttribute('aria-label', this.name);
    // In the capture phase, like the dialog's own listener, which stops the event.
    dialog?.addEventListener('keydown', this.leaveButtons, true);
  }

  /** Move the focus from the last button of the dialog to the first field as it is now. */
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
