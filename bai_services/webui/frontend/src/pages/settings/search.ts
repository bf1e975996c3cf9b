import { defined, textIn } from '../../components/list/listSearch';

export const TABS = ['preferences', 'account', 'ssh-keys', 'keypairs', 'requests'] as const;
export type Tab = (typeof TABS)[number];

/** State of the settings page in the URL. */
export interface SettingsSearch {
  tab?: Tab;
  /** Filter: only preferences or requests whose name contains this text are shown. */
  find?: string;
}

export const readSettingsSearch = (search: Record<string, unknown>): SettingsSearch =>
  defined({
    tab: TABS.find(tab => tab === search['tab'] && tab !== 'preferences'),
    find: textIn(search['find'])
  });
