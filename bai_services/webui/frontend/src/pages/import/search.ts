import { readEntitySearch, type EntitySearch } from '../../components/entities/search';
import { defined, textIn } from '../../components/list/listSearch';

/** State of the page in the URL. Links from other sites give the source, never the target. */
export interface ImportSearch extends EntitySearch {
  repo?: string;
  branch?: string;
  path?: string;
  urlpath?: string;
  /** Id of the session that was started with the files of the import `item`. */
  session?: string;
}

/** Parse the state in a URL; ignore invalid values. */
export const readImportSearch = (search: Record<string, unknown>): ImportSearch =>
  defined({
    ...readEntitySearch(search),
    repo: textIn(search['repo']),
    branch: textIn(search['branch']),
    path: textIn(search['path']),
    urlpath: textIn(search['urlpath']),
    session: textIn(search['session'])
  });
