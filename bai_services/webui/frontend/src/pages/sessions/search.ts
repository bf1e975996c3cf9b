import { STATUS_GROUPS, type StatusGroup } from '../../data/sessions/sessions';
import { defined, readListSearch, textIn, type ListSearch } from '../../components/list/listSearch';

export type Tab = StatusGroup | 'all' | 'interactive' | 'batch' | 'cluster';
export const DEFAULT_SORT = '-created_at';
export const TABS: readonly Tab[] = [
  'all',
  'running',
  'pending',
  'interactive',
  'batch',
  'cluster',
  'ended'
];

/** Tabs of the drawer that a link can open. */
export const PANELS = ['apps', 'logs'] as const;

/** State of the sessions page in the URL, without default values. */
export interface SessionsSearch extends ListSearch {
  tab?: Tab;
  name?: string;
  /** Id of the session in the drawer. */
  session?: string;
  /** Resource group of the panel above the list. */
  group?: string;
  /** Tab of the drawer that is open at first. */
  panel?: (typeof PANELS)[number];
}

/** Parse the state in a URL; ignore invalid values. */
export function readSessionsSearch(search: Record<string, unknown>): SessionsSearch {
  const tab = TABS.find(known => known === search['tab']);
  return defined({
    ...readListSearch(search),
    tab: tab === 'all' ? undefined : tab,
    name: textIn(search['name']),
    session: textIn(search['session']),
    group: textIn(search['group']),
    panel: PANELS.find(known => known === search['panel'])
  });
}

const filtersOfTab = (tab: Tab): Record<string, string> => {
  switch (tab) {
    case 'all':
      return {};
    case 'interactive':
    case 'batch':
      return { type: tab };
    case 'cluster':
      return { cluster_size__gt: '1' };
    default:
      return { status__in: STATUS_GROUPS[tab].join(',') };
  }
};

/** Return the filters of the API for the state of the page. */
export const filtersOf = ({ tab, name, filters }: SessionsSearch): Record<string, string> => ({
  ...filters,
  ...filtersOfTab(tab ?? 'all'),
  ...(name ? { name__contains: name } : {})
});
