import {
  changePreferences,
  currentPreferences,
  usePreferences
} from '../data/accounts/preferences';
import { useShortcut } from './palette/shortcut';

/** Whether the sidebar is collapsed. The browser stores the choice; the key `[` toggles it. */
export function useSidebar() {
  const { isSidebarCompact } = usePreferences();
  useShortcut('[', () =>
    changePreferences({ isSidebarCompact: !currentPreferences().isSidebarCompact })
  );
  return isSidebarCompact;
}
