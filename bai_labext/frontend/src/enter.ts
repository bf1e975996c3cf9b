import * as React from 'react';

/**
 * Handle Enter inside an element of a dialog; JupyterLab would press the dialog's default button.
 *
 * Enter calls `onEnter` in a field, and clicks a button that has the focus.
 */
export function useOwnEnter(within: React.RefObject<HTMLElement>, onEnter: () => void): void {
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
    // Registered before the dialog's listener, which is on its own node.
    document.addEventListener('keydown', listen, true);
    return () => document.removeEventListener('keydown', listen, true);
  }, [within]);
}
