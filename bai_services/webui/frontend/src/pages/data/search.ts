import { defined, readListSearch, textIn, type ListSearch } from '../../components/list/listSearch';

export const TABS = ['all', 'own', 'project', 'shared', 'trash'] as const;
export type Tab = (typeof TABS)[number];

export const FILE_SORTS = [
  'name',
  '-name',
  'size',
  '-size',
  'modified_at',
  '-modified_at'
] as const;
export type FileSort = (typeof FILE_SORTS)[number];

/** State of the data page in the URL. */
export interface DataSearch extends ListSearch {
  tab?: Tab;
  /** Id of the open folder. */
  folder?: string;
  /** Directory in the folder. */
  path?: string;
  /** Text that the names of the shown entries contain. */
  find?: string;
  filesort?: FileSort;
  /** Path of the open file. */
  file?: string;
}

const ACTIVE = 'cloning,ready,performing,error';
const TRASH = 'delete-pending,delete-ongoing,delete-error';

export function readDataSearch(search: Record<string, unknown>): DataSearch {
  const { sort, page, size, filters } = readListSearch(search);
  return defined({
    sort,
    page,
    size,
    filters,
    tab: TABS.find(tab => tab === search['tab'] && tab !== 'all'),
    folder: textIn(search['folder']),
    path: textIn(search['path']),
    find: textIn(search['find']),
    file: textIn(search['file']),
    filesort: FILE_SORTS.find(sort => sort === search['filesort'] && sort !== 'name')
  });
}

/** The API's filters for the folders of a tab. */
export const filtersOfTab = (tab: Tab): Record<string, string> =>
  tab === 'trash'
    ? { status__in: TRASH }
    : { status__in: ACTIVE, ...(tab === 'all' ? {} : { relation: tab }) };
