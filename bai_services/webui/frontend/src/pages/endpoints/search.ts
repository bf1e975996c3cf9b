import { readEntitySearch, type EntitySearch } from '../../components/entities/search';
import {
  defined,
  numberIn,
  readListSearch,
  type ListSearch
} from '../../components/list/listSearch';

/** Tabs of the drawer. */
export const PANELS = [
  'overview',
  'replicas',
  'scaling',
  'revisions',
  'tokens',
  'usage',
  'log'
] as const;
export type Panel = (typeof PANELS)[number];

const FORMS = ['new', 'revision'] as const;

/** State of the page in the URL, without default values. */
export interface EndpointsSearch extends EntitySearch {
  panel?: Panel;
  /** State of the list in the tab. */
  list?: ListSearch;
  /** The open form: of a new endpoint, or of a new revision of the endpoint in the drawer. */
  form?: (typeof FORMS)[number];
  /** Number of the revision that provides the initial values of the form; default: the last one. */
  base?: number;
  /** Numbers of the revisions that are compared. */
  before?: number;
  after?: number;
}

/** Parse the state in a URL; ignore invalid values. */
export function readEndpointsSearch(search: Record<string, unknown>): EndpointsSearch {
  const panel = PANELS.find(known => known === search['panel']);
  return defined({
    ...readEntitySearch(search),
    panel: panel === 'overview' ? undefined : panel,
    list: readInnerList(search['list']),
    form: FORMS.find(known => known === search['form']),
    base: numberIn(search['base']),
    before: numberIn(search['before']),
    after: numberIn(search['after'])
  });
}

function readInnerList(value: unknown): ListSearch | undefined {
  const list = readListSearch(
    value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : {}
  );
  return Object.keys(list).length > 0 ? list : undefined;
}
