import {
  changePreferences,
  currentPreferences,
  usePreferences
} from '../data/accounts/preferences';
import { useShortcut } from './palette/shortcut';

export const ADMINISTRATION = 'administration';

/**
 * The open groups of the sidebar. The group of the current page is open, unless the user has closed
 * it on this page (`closedOn`).
 */
export function openGroups(
  closed: readonly string[],
  current: { path: string; group: string } | undefined,
  closedOn: string | undefined
): string[] {
  return [ADMINISTRATION].filter(
    key => !closed.includes(key) || (current?.group === key && current.path !== closedOn)
  );
}

/** Whether the sidebar is collapsed. The browser stores the choice; the key `[` toggles it. */
export function useSidebar() {
  const { isSidebarCompact } = usePreferences();
  useShortcut('[', () =>
    changePreferences({ isSidebarCompact: !currentPreferences().isSidebarCompact })
  );
  return isSidebarCompact;
}
