import { Stored, useStored } from '../stored';

export const START_PAGES = ['/start', '/dashboard', '/sessions', '/data'] as const;
export const MIN_UPLOADS = 2;
export const MAX_UPLOADS = 5;

/** Preferences of a user in this browser; theme and language are stored separately. */
export interface Preferences {
  startPage: (typeof START_PAGES)[number];
  isSidebarCompact: boolean;
  /** Keys of the groups of the sidebar that the user has closed. */
  closedGroups: readonly string[];
  /** Whether to show notifications of the operating system while the page is in the background. */
  hasDesktopNotices: boolean;
  /** Number of files that are uploaded at the same time. */
  parallelUploads: number;
  /** Id of the project that filters the lists and is the launcher's default; empty: none. */
  project: string;
}

export const DEFAULTS: Preferences = {
  startPage: '/start',
  isSidebarCompact: false,
  closedGroups: [],
  hasDesktopNotices: false,
  parallelUploads: 3,
  project: ''
};

export function readPreferences(stored: unknown): Preferences {
  const given = (stored !== null && typeof stored === 'object' ? stored : {}) as Record<
    string,
    unknown
  >;
  const uploads = Number(given['parallelUploads']);
  return {
    startPage: START_PAGES.find(page => page === given['startPage']) ?? DEFAULTS.startPage,
    isSidebarCompact: given['isSidebarCompact'] === true,
    closedGroups: Array.isArray(given['closedGroups'])
      ? given['closedGroups'].filter(key => typeof key === 'string')
      : DEFAULTS.closedGroups,
    hasDesktopNotices: given['hasDesktopNotices'] === true,
    parallelUploads:
      uploads >= MIN_UPLOADS && uploads <= MAX_UPLOADS ? uploads : DEFAULTS.parallelUploads,
    project: typeof given['project'] === 'string' ? given['project'] : DEFAULTS.project
  };
}

const preferences = new Stored('bai-preferences', readPreferences);

export const currentPreferences = () => preferences.get();
export const usePreferences = () => useStored(preferences);
export const changePreferences = (changes: Partial<Preferences>) =>
  preferences.set({ ...preferences.get(), ...changes });
