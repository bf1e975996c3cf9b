import * as React from 'react';

/**
 * Handle the Enter key inside an element of a dialog. Without this hook, JupyterLab would press the
 * default button of the dialog.
 *
 * In a field, Enter calls `onEnter`; on a button, it clicks the button.
 */
export function useEnterKey(within: React.RefObject<HTMLElement>, onEnter: () => void): void {
  const latest = React.useRef(onEnter);
  latest.current = onEnter;
  React.useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      const { target } = event;
      if (event.key !== 'Enter' || !(target instanceof HTMLElement)) {
        return;
      }
      if (within.current?.contains(target)) {
        event.preventDefault();
        event.stopImmediatePropagation();
        if (target instanceof HTMLButtonElement) {
          target.click();
        } else {
          latest.current();
        }
      }
    };
    // On the document, because capture listeners of the document run before the dialog's own.
    document.addEventListener('keydown', listen, true);
    return () => document.removeEventListener('keydown', listen, true);
  }, [within]);
}
