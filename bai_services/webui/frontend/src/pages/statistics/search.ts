import { defined, textIn } from '../../components/list/listSearch';
import type { EndpointUsageBy } from '../../data/usage/endpointReports';
import type { By, Every } from '../../data/usage/reports';

/** Selectable periods in days; each ends now. */
export const PERIODS = { '7d': 7, '30d': 30, '90d': 90, '365d': 365 } as const;
export type Period = keyof typeof PERIODS;
export const isPeriod = (text: string): text is Period => Object.hasOwn(PERIODS, text);

export const GROUPS = [
  'user',
  'project',
  'domain',
  'resource-group',
  'image',
  'session-kind',
  'device-model'
] as const satisfies readonly By[];
export type Group = (typeof GROUPS)[number];

export const ENDPOINT_GROUPS = [
  'endpoint',
  'token',
  'user',
  'project',
  'domain'
] as const satisfies readonly EndpointUsageBy[];
export type EndpointGroup = (typeof ENDPOINT_GROUPS)[number];

/** State of the page *Statistics* in the URL. */
export interface StatisticsSearch {
  /** For administrators and monitors: `own` shows only the caller's usage. */
  view?: 'own';
  /** `endpoints` shows the requests of endpoints instead of the usage of resources. */
  about?: 'endpoints';
  period?: Period;
  /** First and last day of a chosen period; they take precedence over `period`. */
  since?: string;
  until?: string;
  by?: Group;
  /** Group of the requests of endpoints. */
  group?: EndpointGroup;
  slot?: string;
}

const DATE = /^\d{4}-\d{2}-\d{2}$/;

function dateIn(value: unknown) {
  const text = textIn(value);
  return text !== undefined && DATE.test(text) && !Number.isNaN(Date.parse(text))
    ? text
    : undefined;
}

export function readStatisticsSearch(search: Record<string, unknown>): StatisticsSearch {
  const period = textIn(search['period']);
  const since = dateIn(search['since']);
  const until = dateIn(search['until']);
  const isRange = since !== undefined && until !== undefined && since <= until;
  return defined({
    view: search['view'] === 'own' ? ('own' as const) : undefined,
    about: search['about'] === 'endpoints' ? ('endpoints' as const) : undefined,
    period: period !== undefined && isPeriod(period) ? period : undefined,
    since: isRange ? since : undefined,
    until: isRange ? until : undefined,
    by: GROUPS.find(group => group === search['by']),
    group: ENDPOINT_GROUPS.find(group => group === search['group']),
    slot: textIn(search['slot'])
  });
}

const DAY_MILLIS = 86_400_000;
const MAX_DAYS_BY_HOUR = 3;
const MAX_DAYS_BY_DAY = 100;

/** A period of a report: `until` is the day after the last day; undefined: the period ends now. */
export interface ReportPeriod {
  since: string;
  until?: string;
  days: number;
}

export function periodOf(search: StatisticsSearch, now: Date): ReportPeriod {
  if (search.since && search.until) {
    const days = Math.round((Date.parse(search.until) - Date.parse(search.since)) / DAY_MILLIS) + 1;
    return { since: search.since, until: dayAfter(search.until), days };
  }
  const days = PERIODS[search.period ?? '30d'];
  // Days of the calendar, because a day has 23 or 25 hours when daylight saving time begins or
  // ends.
  const first = new Date(now.getFullYear(), now.getMonth(), now.getDate() - (days - 1));
  return { since: localDate(first), days };
}

/** The last `days` days of a period, or the whole period if it is shorter. */
export function latestDays(period: ReportPeriod, days: number): ReportPeriod {
  if (period.days <= days) {
    return period;
  }
  const since = new Date(Date.parse(period.since) + (period.days - days) * DAY_MILLIS);
  return { ...period, since: since.toISOString().slice(0, 10), days };
}

/** The length of the intervals, chosen so that the chart has a readable number of bars. */
export const everyOf = ({ days }: ReportPeriod): Every =>
  days <= MAX_DAYS_BY_HOUR ? 'hour' : days <= MAX_DAYS_BY_DAY ? 'day' : 'month';

const INTERVALS_OF_DAY: Record<Every, number> = { hour: 24, day: 1, month: 1 / 28, period: 0 };
const MAX_REPORT_ROWS = 20_000;
const MAX_REPORT_GROUPS = 1000;

/** The largest number of groups for which the manager returns a report of `slots` slots. */
export function maxGroups(period: ReportPeriod, every: Every, slots: number): number {
  const intervals = Math.ceil(period.days * INTERVALS_OF_DAY[every]) + 1;
  // Subtract the group that the report adds: the sum of all groups that are not listed.
  const groups = Math.floor(MAX_REPORT_ROWS / (intervals * Math.max(1, slots))) - 1;
  return Math.max(1, Math.min(MAX_REPORT_GROUPS, groups));
}

const dayAfter = (date: string) =>
  new Date(Date.parse(date) + DAY_MILLIS).toISOString().slice(0, 10);

/** The date in the browser's time zone, for example 2026-01-31. */
export function localDate(at: Date): string {
  const two = (number: number) => String(number).padStart(2, '0');
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}
