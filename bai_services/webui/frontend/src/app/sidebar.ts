import { changePreferences, currentPreferences, usePreferences } from '../data/preferences';
import { useShortcut } from './shortcut';

/** Whether the sidebar is collapsed. The browser stores the choice; the key `[` toggles it. */
export function useSidebar() {
  const { isSidebarCompact } = usePreferences();
  useShortcut('[', () =>
    changePreferences({ isSidebarCompact: !currentPreferences().isSidebarCompact })
  );
  return isSidebarCompact;
}
