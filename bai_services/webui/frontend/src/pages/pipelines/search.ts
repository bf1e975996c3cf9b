import { readEntitySearch, type EntitySearch } from '../../components/entities/search';
import { defined, textIn } from '../../components/list/listSearch';

const TABS = ['runs', 'comparison', 'templates', 'schedules', 'triggers'] as const;
const FORMS = ['new', 'edit', 'start'] as const;

/** URL search parameters of the pipelines page; defaults are omitted. `tab` is one of `TABS`. */
export interface PipelinesSearch extends EntitySearch {
  /** The open dialog; `edit` and `start` refer to the pipeline `item`. */
  form?: (typeof FORMS)[number];
  /** Id of the run in the drawer. */
  run?: string;
  /** Id of the pipeline whose runs are compared. */
  of?: string;
  /** Id of the template of the new pipeline in the form. */
  template?: string;
}

/** Parse the state in a URL; ignore invalid values. */
export const readPipelinesSearch = (search: Record<string, unknown>): PipelinesSearch =>
  defined({
    ...readEntitySearch(search),
    tab: TABS.find(known => known === search['tab']),
    form: FORMS.find(known => known === search['form']),
    run: textIn(search['run']),
    of: textIn(search['of']),
    template: textIn(search['template'])
  });
