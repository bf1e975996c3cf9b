import { defined, textIn } from '../../components/listSearch';
import { isRange, type Range } from './timeScale';

/** State of the scheduler page in the URL. */
export interface SchedulerSearch {
  group?: string;
  range?: Range;
}

export function readSchedulerSearch(search: Record<string, unknown>): SchedulerSearch {
  const range = textIn(search['range']);
  return defined({
    group: textIn(search['group']),
    range: range !== undefined && isRange(range) ? range : undefined
  });
}
