import { ReactWidget } from '@jupyterlab/apputils';
import type { Message } from '@lumino/messaging';

const FIELDS = 'input, select, button, a[href]';

/**
 * The body of a dialog for who uses the keyboard or hears the page.
 *
 * JupyterLab gives a dialog a title but no name, and looks for its first field when none is drawn
 * yet: from the last button Tab would lead to the buttons again and never into the form.
 */
export abstract class Form extends ReactWidget {
  constructor(private readonly name: string) {
    super();
    this.addClass('bai-Form');
    // Found as the first field; hands the focus on to what is one. A click is no such visit.
    this.node.tabIndex = -1;
    this.node.addEventListener('focus', () => {
      if (this.node.matches(':focus-visible')) {
        this.node.querySelector<HTMLElement>(FIELDS)?.focus();
      }
    });
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    // The dialog would wait for an idle moment before it takes the focus to its button, and on a
    // busy machine take it from who fills in the form by then. With nothing to wait for, it does now.
    delete this.renderPromise;
    this.node.closest('.jp-Dialog')?.setAttribute('aria-label', this.name);
  }
}
