import type { ApiError } from '../client';

/** Maximum number of lines in the browser; the download contains the whole output. */
export const MAX_LINES = 20_000;

/** The output of a kernel so far. */
export interface Log {
  lines: string[];
  /** Number of dropped lines before `lines`. */
  dropped: number;
  /** Whether output was lost between two polls of the agent. */
  hasGap: boolean;
  state: 'loading' | 'live' | 'ended';
  error?: ApiError | undefined;
}

/**
 * Return a log with more output; its last line can be incomplete. Output after a gap begins a new
 * line.
 */
export function appended(log: Log, text: string, isGap: boolean): Log {
  const [first = '', ...more] = text.split('\n');
  const last = log.lines.at(-1) ?? '';
  const joined = isGap && last !== '' ? [last, first] : [last + first];
  const lines = [...log.lines.slice(0, -1), ...joined, ...more];
  const excess = Math.max(0, lines.length - MAX_LINES);
  return {
    lines: lines.slice(excess),
    dropped: log.dropped + excess,
    hasGap: log.hasGap || isGap,
    state: 'live'
  };
}
