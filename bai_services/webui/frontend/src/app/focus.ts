/** Keeps the focus of keyboard users when the focused element disappears. */

// Number of elements that can take the focus back. A form has fewer fields.
const MAX_HISTORY = 30;
const CONTENT = 'content';

interface Focused {
  element: HTMLElement;
  dialog: HTMLElement | null;
  path: string;
}

/**
 * Move the focus when its element is removed or hidden: within an open dialog to the dialog, after
 * a change of the page to the content, else to the element that had the focus before, for example
 * the button that has opened a dialog. Browsers would move it to the start of the page.
 */
export function keepFocus(): void {
  let history: Focused[] = [];
  let last: Focused | undefined;
  // Whether the user has clicked on something that cannot have the focus.
  let hasLeft = false;

  // While a key is pressed, the element that takes the focus would also take the key: Enter in a
  // field would press a button.
  let isKeyDown = false;

  const restore = () => {
    if (isKeyDown) {
      return;
    }
    if (last === undefined || document.activeElement !== document.body || isUsable(last.element)) {
      return;
    }
    const { dialog, path } = last;
    last = undefined;
    if (hasLeft && dialog === null) {
      return;
    }
    history = history.filter(({ element }) => element.isConnected);
    const previous = history.findLast(({ element }) => isUsable(element))?.element;
    const target =
      dialog && isUsable(dialog) ? dialog : path === location.pathname ? previous : undefined;
    (target ?? document.getElementById(CONTENT))?.focus({ preventScroll: true });
  };

  document.addEventListener('focusin', ({ target }) => {
    if (target instanceof HTMLElement) {
      const dialog = dialogOf(target);
      if (dialog === null && last?.dialog && isUsable(last.dialog)) {
        // Ignore the focus outside of a dialog: the dialog takes it back when the user leaves it
        // with the keyboard.
        return;
      }
      hasLeft = false;
      last = { element: target, dialog, path: location.pathname };
      const others = history.filter(({ element }) => element !== target);
      history = [...others, last].slice(-MAX_HISTORY);
    }
  });
  document.addEventListener('focusout', ({ relatedTarget }) => {
    if (relatedTarget === null) {
      window.setTimeout(() => {
        hasLeft = document.activeElement === document.body && !!last && isUsable(last.element);
        restore();
      });
    }
  });
  document.addEventListener('keydown', () => (isKeyDown = true), { capture: true });
  const release = () => {
    isKeyDown = false;
    window.setTimeout(restore);
  };
  document.addEventListener('keyup', release, { capture: true });
  window.addEventListener('blur', release);
  // Observe the document, because not every browser reports the removal of the focused element.
  new MutationObserver(restore).observe(document.body, { childList: true, subtree: true });
}

const isUsable = (element: HTMLElement) =>
  element.isConnected &&
  element.checkVisibility({ visibilityProperty: true }) &&
  !element.matches(':disabled') &&
  element.closest('[inert]') === null;

/** The focusable element around the dialog that contains an element. */
const dialogOf = (element: HTMLElement) =>
  element.closest<HTMLElement>('[role=dialog]')?.closest<HTMLElement>('[tabindex]') ?? null;
