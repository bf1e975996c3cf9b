import type { KeyboardEvent } from 'react';

/**
 * Handle Enter in the menu of a button. Without this, the key would also press the button that gets
 * the focus, such as *Close* of a dialog that the entry opens, and would not follow links.
 */
export function onMenuKeyDown(event: KeyboardEvent<HTMLElement>): void {
  if (event.key === 'Enter') {
    event.preventDefault();
    (event.target as HTMLElement).querySelector('a')?.click();
  }
}
