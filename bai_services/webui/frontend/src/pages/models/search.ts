import { readEntitySearch, type EntitySearch } from '../../components/entities/search';
import { defined } from '../../components/list/listSearch';

const FORMS = ['import', 'publish', 'deploy', 'clone'] as const;

/** State of the page in the URL, without default values; the tab `imports` lists imports. */
export interface ModelsSearch extends EntitySearch {
  /** The open dialog: an import, a new model, or the deployment or a clone of the model in the drawer. */
  form?: (typeof FORMS)[number];
}

/** Parse the state in a URL; ignore invalid values. */
export const readModelsSearch = (search: Record<string, unknown>): ModelsSearch =>
  defined({
    ...readEntitySearch(search),
    tab: search['tab'] === 'imports' ? 'imports' : undefined,
    form: FORMS.find(known => known === search['form'])
  });
