import { defined, textIn } from '../../components/list/listSearch';

export const TABS = ['preferences', 'account', 'ssh-keys', 'keypairs', 'requests'] as const;
export type Tab = (typeof TABS)[number];

/** State of the settings page in the URL. */
export interface SettingsSearch {
  tab?: Tab;
  /** Filter: text in a preference's name or description, or in a request's method or path. */
  find?: string;
}

export const readSettingsSearch = (search: Record<string, unknown>): SettingsSearch =>
  defined({
    tab: TABS.find(tab => tab === search['tab'] && tab !== 'preferences'),
    find: textIn(search['find'])
  });
