import { changePreferences, currentPreferences, usePreferences } from '../data/preferences';
import { useShortcut } from './shortcut';

/** Whether the sidebar is collapsed; the browser keeps the choice, and the key `[` changes it. */
export function useSidebar() {
  const { isSidebarCompact } = usePreferences();
  useShortcut('[', () =>
    changePreferences({ isSidebarCompact: !currentPreferences().isSidebarCompact })
  );
  return isSidebarCompact;
}
