import { Stored } from './stored';

const MAX_NOTICES = 50;
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
  /** Id of the session; empty for shares. */
  session: string;
  /** Exit code of a failed batch session, if it is known. */
  code?: number;
}

const isNotice = (value: unknown): value is Notice => {
  const given = (value ?? {}) as Record<string, unknown>;
  return (
    NOTICE_KINDS.some(kind => kind === given['kind']) &&
    ['key', 'name', 'info', 'at', 'session'].every(key => typeof given[key] === 'string') &&
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

const notices = new Stored('bai-notices', readNotices);

/** Switch to the stored list of a user. */
export const openNotices = (username: string) => notices.open(`bai-notices-${username}`);

/** Add a notice; returns whether it is new. */
export function addNotice(notice: Omit<Notice, 'at'>): boolean {
  const known = notices.get();
  if (known.some(({ key }) => key === notice.key)) {
    return false;
  }
  notices.set(withNotice(known, { ...notice, at: new Date().toISOString() }));
  return true;
}

/** Whether a notice with one of these keys was added before. */
export const hasNotice = (keys: readonly string[]) =>
  notices.get().some(({ key }) => keys.includes(key));
