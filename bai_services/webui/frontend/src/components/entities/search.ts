import { defined, readListSearch, textIn, type ListSearch } from '../list/listSearch';

/** Search parameters in the URL of a page that lists a collection. */
export interface EntitySearch extends ListSearch {
  /** Key of the object in the drawer. */
  item?: string;
  /** Name of the collection, on pages with several. */
  tab?: string;
}

export const readEntitySearch = (search: Record<string, unknown>): EntitySearch =>
  defined({
    ...readListSearch(search),
    item: textIn(search['item']),
    tab: textIn(search['tab'])
  });
