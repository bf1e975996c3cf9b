import { defined, textIn } from '../../components/list/listSearch';
import { MAX_POLICIES, policyOf, policyText } from './replays/policies';
import { isRange, type Range } from './timeScale';

/** What the page shows: the queue, preemptions, or replays under other policies. */
const VIEWS = ['queue', 'preemptions', 'try'] as const;
export type View = (typeof VIEWS)[number];

/** Length in days of the replayed period, which ends now. */
export const REPLAY_PERIODS = { '1d': 1, '7d': 7, '30d': 30, '90d': 90 } as const;
export type ReplayPeriod = keyof typeof REPLAY_PERIODS;
export const isReplayPeriod = (text: string): text is ReplayPeriod =>
  Object.hasOwn(REPLAY_PERIODS, text);

/** State of the scheduler page in the URL. */
export interface SchedulerSearch {
  group?: string;
  range?: Range;
  view?: View;
  since?: ReplayPeriod;
  /** Policies to try; see `policyText`. */
  policies?: string[];
  /** The id of the replay that is shown. */
  replay?: string;
}

export function readSchedulerSearch(search: Record<string, unknown>): SchedulerSearch {
  const range = textIn(search['range']);
  const since = textIn(search['since']);
  return defined({
    group: textIn(search['group']),
    range: range !== undefined && isRange(range) ? range : undefined,
    view: VIEWS.slice(1).find(view => view === search['view']),
    since: since !== undefined && isReplayPeriod(since) ? since : undefined,
    policies: policiesIn(search['policies']),
    replay: textIn(search['replay'])
  });
}

function policiesIn(value: unknown): string[] | undefined {
  const texts = Array.isArray(value)
    ? value.filter((text): text is string => typeof text === 'string')
    : [];
  return texts.length > 0
    ? texts.slice(0, MAX_POLICIES).map(text => policyText(policyOf(text)))
    : undefined;
}
