import { ReactWidget } from '@jupyterlab/apputils';
import type { Message } from '@lumino/messaging';

const FIELDS = 'input, select, button, a[href]';

/**
 * Dialog body that is accessible by keyboard and screen reader.
 *
 * This class adds the accessible name, which JupyterLab dialogs lack. It also makes Tab reach the
 * first field: JupyterLab looks for the first field when the dialog opens, which is too early,
 * because the fields are not rendered yet.
 */
export abstract class Form extends ReactWidget {
  constructor(private readonly name: string) {
    super();
    this.addClass('bai-Form');
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    // The dialog would wait for this promise and then move the focus to its default button. On a
    // slow machine the user could already be typing in the form by then.
    delete this.renderPromise;
    const dialog = this.node.closest<HTMLElement>('.jp-Dialog');
    dialog?.setAttribute('aria-label', this.name);
    // A capture listener, because the dialog's own capture listener stops the event.
    dialog?.addEventListener('keydown', this.focusFirstField, true);
  }

  /** On Tab, move the focus from the dialog's last button to the first field. */
  private readonly focusFirstField = (event: KeyboardEvent): void => {
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
