import { defined, textIn } from '../../components/list/listSearch';

/** State of the dashboard in the URL. */
export interface DashboardSearch {
  project?: string;
  group?: string;
}

export const readDashboardSearch = (search: Record<string, unknown>): DashboardSearch =>
  defined({ project: textIn(search['project']), group: textIn(search['group']) });
