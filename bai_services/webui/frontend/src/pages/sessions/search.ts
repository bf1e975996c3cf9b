import { PAGE_SIZES, STATUS_GROUPS, type StatusGroup } from '../../data/sessions';

export type Tab = StatusGroup | 'all';
export const TABS: readonly Tab[] = ['all', 'running', 'pending', 'ended'];
const SORTABLE = ['name', 'created_at', 'status', 'type'];

/** State of the sessions page in the URL, without default values. */
export interface SessionsSearch {
  tab?: Tab;
  name?: string;
  type?: string;
  sort?: string;
  page?: number;
  size?: number;
  /** Id of the session in the drawer. */
  session?: string;
}

const textIn = (value: unknown) => (typeof value === 'string' && value ? value : undefined);
const numberIn = (value: unknown) =>
  typeof value === 'number' && Number.isInteger(value) && value > 0 ? value : undefined;

/** Read the state from a URL; invalid values are ignored. */
export function readSessionsSearch(search: Record<string, unknown>): SessionsSearch {
  const tab = TABS.find(known => known === search['tab']);
  const sort = textIn(search['sort']);
  const size = numberIn(search['size']);
  const read = {
    tab: tab === 'all' ? undefined : tab,
    name: textIn(search['name']),
    type: textIn(search['type']),
    sort: sort && SORTABLE.includes(sort.replace(/^-/, '')) ? sort : undefined,
    page: numberIn(search['page']),
    size: size && PAGE_SIZES.includes(size) ? size : undefined,
    session: textIn(search['session'])
  };
  return Object.fromEntries(Object.entries(read).filter(([, value]) => value !== undefined));
}

/** Return the filters of the API for the state of the page. */
export function filtersOf(search: SessionsSearch): Record<string, string> {
  const { tab, name, type } = search;
  return {
    ...(tab && tab !== 'all' ? { status__in: STATUS_GROUPS[tab].join(',') } : {}),
    ...(name ? { name__contains: name } : {}),
    ...(type ? { type } : {})
  };
}
