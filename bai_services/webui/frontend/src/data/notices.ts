import { Stored, useStored } from './stored';

const MAX_NOTICES = 50;
// A smaller difference comes from rounding.
const POSTPONED_MILLIS = 60_000;
export const NOTICE_KINDS = ['RUNNING', 'ERROR', 'failed', 'stops-soon', 'share'] as const;

export interface Notice {
  /** A notice with a known key is not added again. */
  key: string;
  kind: (typeof NOTICE_KINDS)[number];
  /** Name of the session or folder. */
  name: string;
  /** The server's explanation, or the user who shares the folder. */
  info: string;
  at: string;
  isRead: boolean;
  /** Id of the session; empty for shares. */
  session: string;
  /** For a warning: the announced end of the session. */
  endsAt?: string;
  /** Exit code of a failed batch session, if it is known. */
  code?: number;
  /** Cleared notices are hidden but kept, so that the same notice does not appear again. */
  isCleared?: boolean;
}

const isNotice = (value: unknown): value is Notice => {
  const given = (value ?? {}) as Record<string, unknown>;
  return (
    NOTICE_KINDS.some(kind => kind === given['kind']) &&
    ['key', 'name', 'info', 'at', 'session'].every(key => typeof given[key] === 'string') &&
    typeof given['isRead'] === 'boolean' &&
    ['undefined', 'string'].includes(typeof given['endsAt']) &&
    ['undefined', 'number'].includes(typeof given['code'])
  );
};

export const readNotices = (stored: unknown): Notice[] =>
  Array.isArray(stored) ? stored.filter(isNotice).slice(0, MAX_NOTICES) : [];

/**
 * Prepend a notice to the list; drop the oldest notices beyond `MAX_NOTICES`. The failure of a
 * session replaces the notice of its start.
 */
export function withNotice(notices: readonly Notice[], notice: Notice): Notice[] {
  const isReplaced = ({ kind, session }: Notice) =>
    kind === 'RUNNING' &&
    session === notice.session &&
    (notice.kind === 'ERROR' || notice.kind === 'failed');
  return [notice, ...notices.filter(old => !isReplaced(old))].slice(0, MAX_NOTICES);
}

/**
 * Whether a notice of a start or an announced stop is about a session that is no longer running.
 */
export const isOutdated = (
  { kind, session, at }: Notice,
  running: readonly { id: string }[],
  readAt: number
): boolean =>
  (kind === 'RUNNING' || kind === 'stops-soon') &&
  readAt > Date.parse(at) &&
  running.every(({ id }) => id !== session);

/**
 * Whether a notice announces an end that has been postponed. `end` is the current end of the
 * session; undefined: the session has no end.
 */
export const isPostponed = ({ endsAt }: Notice, end: string | undefined): boolean =>
  endsAt !== undefined &&
  (end === undefined || Date.parse(end) - Date.parse(endsAt) > POSTPONED_MILLIS);

/** The notices that were not cleared. */
export const shown = (all: readonly Notice[]) => all.filter(({ isCleared }) => !isCleared);

const notices = new Stored('bai-notices', readNotices);

export const useNotices = () => shown(useStored(notices));

/** Switch to the stored list of a user. */
export const openNotices = (username: string) => notices.open(`bai-notices-${username}`);

/** Add a notice; returns whether it is new. */
export function addNotice(notice: Omit<Notice, 'at' | 'isRead'>): boolean {
  const known = notices.get();
  if (known.some(({ key }) => key === notice.key)) {
    return false;
  }
  notices.set(withNotice(known, { ...notice, at: new Date().toISOString(), isRead: false }));
  return true;
}

export function markRead(): void {
  if (notices.get().some(({ isRead }) => !isRead)) {
    notices.set(notices.get().map(notice => ({ ...notice, isRead: true })));
  }
}

export const clearNotices = () =>
  notices.set(notices.get().map(notice => ({ ...notice, isRead: true, isCleared: true })));
