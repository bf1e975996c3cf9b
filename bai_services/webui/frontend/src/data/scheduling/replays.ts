import { queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type Replay = Schemas['Replay'];
export type Comparison = Schemas['Comparison'];
export type PolicyReport = Schemas['PolicyReport'];
export type GroupWaits = Schemas['GroupWaits'];
type TriedPolicy = Schemas['TriedPolicy'];

const DAY_MILLIS = 86_400_000;
const POLL_MILLIS = 1_000;
const REFRESH_MILLIS = 30_000;

/** The latest replays of a resource group, the newest first. */
export const replaysQuery = (group: string) =>
  queryOptions({
    queryKey: ['replays', group],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/resource-groups/{key}/replays', { signal, params: { path: { key: group } } })
      ),
    select: ({ replays }) => replays,
    refetchInterval: ({ state }) =>
      state.data?.replays.some(({ status }) => status === 'running') ? POLL_MILLIS : REFRESH_MILLIS
  });

/** A replay with its result. It is polled until it has ended. */
export const replayQuery = (group: string, id: string) =>
  queryOptions({
    queryKey: ['replays', group, id],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/resource-groups/{key}/replays/{replay}', {
          signal,
          params: { path: { key: group, replay: id } }
        })
      ),
    refetchInterval: ({ state }) => (state.data?.replay.status === 'running' ? POLL_MILLIS : false)
  });

const refresh = (group: string) => queries.invalidateQueries({ queryKey: ['replays', group] });

/** Start a replay of the last `days` days under the current policy and under `policies`. */
export function useStartReplay(group: string) {
  return useMutation({
    mutationFn: ({ days, policies }: { days: number; policies: TriedPolicy[] }) => {
      const since = new Date(Date.now() - days * DAY_MILLIS).toISOString();
      return unwrap(
        api.POST('/resource-groups/{key}/replays', {
          params: { path: { key: group } },
          body: { since, until: null, policies }
        })
      );
    },
    onSettled: () => refresh(group)
  });
}

export function useCancelReplay(group: string) {
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(
        api.DELETE('/resource-groups/{key}/replays/{replay}', {
          params: { path: { key: group, replay: id } }
        })
      ),
    onSettled: () => refresh(group)
  });
}
