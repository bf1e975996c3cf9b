import { queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../client';

/** The SBOM of an image, which an agent reads. */
export const imageSbomQuery = (id: string) =>
  queryOptions({
    // Not below `entities`: changes of lists must not read the image again.
    queryKey: ['image-sboms', id],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/images/{key}/sbom', { signal, params: { path: { key: id } } })),
    retry: false,
    staleTime: 5 * 60_000
  });
