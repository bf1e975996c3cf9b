import { defined, textIn } from '../../components/list/listSearch';

export const TABS = [
  'preferences',
  'account',
  'ssh-keys',
  'keypairs',
  'sign-ins',
  'notifications',
  'setup',
  'accesses',
  'requests'
] as const;
export type Tab = (typeof TABS)[number];

/** State of the settings page in the URL. */
export interface SettingsSearch {
  tab?: Tab;
  /**
   * Filter: show only preferences whose label or help text contains this text, or requests whose
   * method and path contain it.
   */
  find?: string;
}

export const readSettingsSearch = (search: Record<string, unknown>): SettingsSearch =>
  defined({
    tab: TABS.find(tab => tab === search['tab'] && tab !== 'preferences'),
    find: textIn(search['find'])
  });
