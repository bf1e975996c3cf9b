import { useMutation } from '@tanstack/react-query';
import { api, unwrap } from '../client';
import { queries } from '../queries';

const refresh = () => queries.invalidateQueries({ queryKey: ['entities'] });

/** Queue a scan of a registry. */
export function useScanRegistry() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.POST('/image-registries/{key}/scan', { params: { path: { key } } })),
    onSettled: refresh
  });
}

export function useCancelScan() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.DELETE('/image-registries/{key}/scan', { params: { path: { key } } })),
    onSettled: refresh
  });
}
