import { useMutation } from '@tanstack/react-query';
import { api, unwrap } from '../client';
import { queries } from '../queries';
import type { components } from '../schema';

export type NewCommit = components['schemas']['NewCommit'];

const refresh = () => queries.invalidateQueries({ queryKey: ['entities'] });

/** Commit a running session to a custom image. */
export function useCommit(session: string) {
  return useMutation({
    mutationFn: (body: NewCommit) =>
      unwrap(api.POST('/sessions/{key}/commit', { params: { path: { key: session } }, body })),
    onSettled: refresh
  });
}

export function useCancelCommit() {
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(api.POST('/custom-images/{key}/cancel', { params: { path: { key: id } } })),
    onSettled: refresh
  });
}

/** Ask an administrator to publish a custom image. */
export function useRequestPublication() {
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(
        api.POST('/custom-images/{key}/publication-request', { params: { path: { key: id } } })
      ),
    onSettled: refresh
  });
}
