import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Session } from '../client';
import type { paths } from '../schema';
import { queries } from '../queries';
import { runAll } from '../runAll';

export type { Session };

/** Statuses of the sessions page's tabs for running, pending and ended sessions. */
export const STATUS_GROUPS = {
  running: ['PREPARING', 'PREPARED', 'RUNNING', 'TERMINATING'],
  pending: ['PENDING', 'SCHEDULED', 'SUSPENDED'],
  ended: ['TERMINATED', 'CANCELLED', 'ERROR']
} as const;
export type StatusGroup = keyof typeof STATUS_GROUPS;

/** The statuses of sessions that have not ended. */
export const LIVE_STATUSES = [...STATUS_GROUPS.pending, ...STATUS_GROUPS.running];

// Each stop takes several requests of the manager to the Hub and the agents.
const PARALLEL_CHANGES = 5;
const ENDED: readonly string[] = STATUS_GROUPS.ended;
const PENDING: readonly string[] = ['PENDING', 'SCHEDULED'];

export const isEnded = (session: Session) => ENDED.includes(session.status);
export const isPending = (session: Session) => PENDING.includes(session.status);

/**
 * Whether a batch session has failed. The result of an interactive session is ignored, because it
 * is a failure even after an idle timeout.
 */
export const hasFailed = ({ type, status, result }: Session) =>
  type === 'batch' && status === 'TERMINATED' && result === 'failure';

/**
 * The exit code with which the session ended, or null. A code of 0 says that the session ended by
 * itself only if its command has succeeded: a session that is stopped can also end with it.
 */
export const exitCodeOf = ({
  type,
  result,
  exit_code: code
}: Pick<Session, 'type' | 'result' | 'exit_code'>) =>
  code === 0 && (type !== 'batch' || result !== 'success') ? null : code;

/** Whether the caller, such as a monitor, may neither change the session nor read its log. */
export const isOnlyRead = (session: Session) => session.hidden_fields.length > 0;

export const isSuspended = (session: Session) => session.status === 'SUSPENDED';

/** Whether the session can be suspended: only interactive sessions with one kernel. */
export const canSuspend = ({ type, status, cluster_size: size }: Session) =>
  type === 'interactive' && status === 'RUNNING' && size === 1;

const SUSPENSION_CODES = ['suspending-by', 'requeuing-by', 'suspended-by', 'suspended-until'];

/** Whether the session is suspended, or is being saved for a suspension. */
export const hasSuspension = ({ status, status_coded: coded }: Session) =>
  status === 'SUSPENDED' || SUSPENSION_CODES.includes(coded?.code ?? '');

/** Whether an interactive session was preempted, and waits to start again with its home. */
export const wasPreempted = (session: Session) =>
  isPending(session) && session.type === 'interactive' && session.restart_count > 0;

/** The URL of a running interactive session's server; null for any other session. */
export const serverUrl = (session: Session) =>
  session.type === 'interactive' && session.status === 'RUNNING' ? session.url : null;

/** Whether the Hub attaches a server to this batch session when its owner opens an app. */
export const isOpenedOnDemand = (session: Session) =>
  session.type === 'batch' && session.started_by === 'agent';

/** Whether the session has apps, now or when it runs. */
export const hasApps = (session: Session) =>
  session.type === 'interactive' || isOpenedOnDemand(session);

export type IdleCheck = Session['idle_checks'][number];

/** The results of the idle checkers that stop a session; a dry run stops nothing. */
export const stoppingChecks = ({ idle_checks: checks }: Session) =>
  checks.filter(check => !check.is_dry_run);

/** The time at which a session is stopped if it is not used or extended; undefined: never. */
export const endOf = (session: Session) =>
  [
    session.idle_ends_at,
    session.ends_at,
    session.end_rule?.ends_at ?? null,
    session.preemption?.stops_at ?? null,
    ...stoppingChecks(session).map(check => check.ends_at)
  ]
    .filter(time => time !== null)
    .sort()[0];

/**
 * The notices of a session without the warnings of idle checkers, which begin with the rule of the
 * checker: the time limits show the rule and the countdown.
 */
export const otherNotices = (session: Session) =>
  session.notices.filter(
    notice =>
      !stoppingChecks(session).some(
        ({ status, reason }) => status === 'idle' && reason !== '' && notice.startsWith(reason)
      )
  );

/** The idle checker that ends a session first; undefined if another limit ends it first. */
export const endingCheck = (session: Session) =>
  endKind(session) === 'checker'
    ? stoppingChecks(session).find(({ ends_at: end }) => end === endOf(session))
    : undefined;

/** Why a session ends first; `rule`: a schedule, a spent budget or the time limit of a batch. */
export const endKind = (
  session: Session
): 'idle' | 'checker' | 'lifetime' | 'preemption' | 'rule' => {
  const end = endOf(session);
  if (end === session.preemption?.stops_at) {
    return 'preemption';
  }
  const check = stoppingChecks(session).find(({ ends_at }) => ends_at === end);
  if (end === session.ends_at || check?.type === 'session-lifetime') {
    return 'lifetime';
  }
  if (end === session.idle_ends_at) {
    return 'idle';
  }
  return check === undefined ? 'rule' : 'checker';
};

/** The schedule or budget that ends a session first; null: another limit. */
export const endingRule = (session: Session) =>
  endKind(session) === 'rule' ? session.end_rule : null;

/** Query of a page of the list. The keys of filters are fields of the API, or `field__operator`. */
export interface SessionList {
  limit: number;
  offset: number;
  sort: string;
  filters: Record<string, string>;
}

/** The list is filtered, sorted and paged by the server. */
export const sessionsQuery = (list: SessionList) =>
  queryOptions({
    queryKey: ['sessions', 'list', list],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/sessions', {
          signal,
          params: {
            query: { limit: list.limit, offset: list.offset, sort: list.sort, ...list.filters }
          }
        })
      ),
    placeholderData: keepPreviousData
  });

/**
 * All running sessions of a user, oldest first. The API cannot sort by the end of a session, which
 * depends on its policy and its activity.
 */
export const runningSessionsQuery = (owner: string) =>
  queryOptions({
    queryKey: ['sessions', 'running', owner],
    queryFn: ({ signal }) =>
      allItems(page => {
        const query = { ...page, sort: 'created_at', owner, status: 'RUNNING' };
        return unwrap(api.GET('/sessions', { signal, params: { query } }));
      })
  });

/** Interval of loading sessions again: countdowns and utilization change without an event. */
export const LIST_REFRESH_MILLIS = 15_000;
const MIN_REFRESH_MILLIS = 1_000;

/** Number of sessions that match the filters. */
export const sessionCountQuery = (filters: Record<string, string>) =>
  queryOptions({
    ...sessionsQuery({ limit: 1, offset: 0, sort: '-created_at', filters }),
    select: (page: { total: number }) => page.total
  });

/** Request a session, without the cache. */
export const readSession = (id: string, signal: AbortSignal | null = null) =>
  unwrap(api.GET('/sessions/{key}', { signal, params: { path: { key: id } } }));

export const sessionQuery = (id: string) =>
  queryOptions({
    queryKey: ['sessions', 'one', id],
    queryFn: ({ signal }) => readSession(id, signal)
  });

/**
 * When to load a session again that was loaded at this time, in milliseconds after it. Its limits
 * change without an event, for example when it is kept alive elsewhere.
 *
 * @returns false if the session does not run, or has no limit
 */
function sessionRefreshMillis(session: Session | undefined, loadedAt: number) {
  if (session?.status !== 'RUNNING') {
    return false;
  }
  const end = endOf(session);
  if (end === undefined && session.idle_checks.length === 0) {
    return false;
  }
  const left = Date.parse(end ?? '') - loadedAt;
  // Also load it when its countdown reaches 0: the stop may have been postponed.
  return left > 0
    ? Math.min(LIST_REFRESH_MILLIS, Math.max(left, MIN_REFRESH_MILLIS))
    : LIST_REFRESH_MILLIS;
}

/** A session whose limits are shown with countdowns. */
export const sessionWithLimitsQuery = (id: string) =>
  queryOptions({
    ...sessionQuery(id),
    refetchInterval: ({ state }) =>
      sessionRefreshMillis(state.data, Math.max(state.dataUpdatedAt, state.errorUpdatedAt))
  });

export const whyQuery = (id: string) =>
  queryOptions({
    queryKey: ['sessions', 'why', id],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/sessions/{key}/why', { signal, params: { path: { key: id } } }))
  });

export const historyQuery = (id: string) =>
  queryOptions({
    queryKey: ['sessions', 'history', id],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/sessions/{key}/history', { signal, params: { path: { key: id } } }))
  });

/**
 * Stop sessions; resolve with the sessions that could not be stopped, and their errors.
 *
 * @param isForced remove the containers at once, without a graceful shutdown
 * @param onProgress called after each session with the number of processed sessions
 */
export function useStopSessions(isForced = false, onProgress?: (count: number) => void) {
  return useMutation({
    mutationFn: async (sessions: readonly Session[]) => {
      const stop = ({ id }: Session) => {
        const query = isForced ? { force: 'true' } : {};
        return unwrap(api.DELETE('/sessions/{key}', { params: { path: { key: id }, query } }));
      };
      const failures = await runAll(sessions, PARALLEL_CHANGES, stop, onProgress);
      return failures.map(({ item: session, error }) => ({ session, error }));
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ['sessions'] })
  });
}

/** The sessions that dependencies, in either direction, connect with a session. */
export const graphQuery = (id: string) =>
  queryOptions({
    queryKey: ['sessions', 'graph', id],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/sessions/{key}/dependency-graph', { signal, params: { path: { key: id } } }))
  });

export const suspensionQuery = (session: Session) =>
  queryOptions({
    queryKey: ['sessions', 'suspension', session.id, session.status],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/sessions/{key}/suspension', { signal, params: { path: { key: session.id } } })
      )
  });

export interface SuspensionRequest {
  seconds: number;
  requeue: boolean;
  keep_variables: boolean;
}

export function useSuspendSession(id: string) {
  return useMutation({
    mutationFn: (body: SuspensionRequest) =>
      unwrap(api.POST('/sessions/{key}/suspend', { params: { path: { key: id } }, body })),
    onSettled: () => queries.invalidateQueries({ queryKey: ['sessions'] })
  });
}

export function useResumeSession(id: string) {
  return useMutation({
    mutationFn: () => unwrap(api.POST('/sessions/{key}/resume', { params: { path: { key: id } } })),
    onSettled: () => queries.invalidateQueries({ queryKey: ['sessions'] })
  });
}

type FieldChanges = paths['/sessions/{key}']['patch']['requestBody']['content']['application/json'];

export type SessionChange =
  | { kind: 'fields'; values: { name?: string; priority?: number } }
  | { kind: 'activity' }
  | { kind: 'keep-alive' }
  | { kind: 'exclusion'; isExcluded: boolean }
  | { kind: 'size'; resources: Record<string, string> }
  | { kind: 'lifetime'; seconds: number };

/**
 * Rename a session, change its priority or its size, restart its idle timeout, or extend its
 * lifetime.
 */
export function useChangeSession(id: string) {
  return useMutation({
    mutationFn: async (change: SessionChange) => {
      const params = { path: { key: id } };
      if (change.kind === 'fields') {
        const body = change.values as FieldChanges;
        await unwrap(api.PATCH('/sessions/{key}', { params, body }));
      } else if (change.kind === 'activity') {
        await unwrap(api.POST('/sessions/{key}/activity', { params, body: { idle_seconds: 0 } }));
      } else if (change.kind === 'keep-alive') {
        await unwrap(api.POST('/sessions/{key}/idle-checks/keep-alive', { params }));
      } else if (change.kind === 'exclusion') {
        const body = { is_excluded: change.isExcluded };
        await unwrap(api.PUT('/sessions/{key}/idle-checks/exclusion', { params, body }));
      } else if (change.kind === 'size') {
        const body = { resources: change.resources };
        await unwrap(api.POST('/sessions/{key}/resize', { params, body }));
      } else {
        const body = { seconds: change.seconds };
        await unwrap(api.POST('/sessions/{key}/lifetime', { params, body }));
      }
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ['sessions'] })
  });
}

/** Set the priority of each session; return the sessions for which it failed, with the errors. */
export function useSetPriorities() {
  return useMutation({
    mutationFn: ({ ids, priority }: { ids: readonly string[]; priority: number }) =>
      runAll(ids, PARALLEL_CHANGES, key =>
        unwrap(
          api.PATCH('/sessions/{key}', {
            params: { path: { key } },
            body: { priority } as FieldChanges
          })
        )
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: ['sessions'] })
  });
}
