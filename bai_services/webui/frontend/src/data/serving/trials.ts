import { queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

export type NewTrial = Schemas['NewTrial'];

const REFRESH_MILLIS = 1_000;

export const trialQuery = (key: string) =>
  queryOptions({
    queryKey: ['endpoint-trials', key],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/endpoint-trials/{key}', { signal, params: { path: { key } } })),
    refetchInterval: query => (query.state.data?.ended_at ? false : REFRESH_MILLIS)
  });

export function useTry() {
  return useMutation({
    mutationFn: (body: NewTrial) => unwrap(api.POST('/endpoint-trials', { body }))
  });
}

export function useEndTrial(key: string) {
  return useMutation({
    mutationFn: () => unwrap(api.DELETE('/endpoint-trials/{key}', { params: { path: { key } } }))
  });
}
