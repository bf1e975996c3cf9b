import { queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from './client';

export type SystemInfo = Schemas['SystemInfo'];
export type Package = Schemas['Package'];

/** Facts about the installation, for administrators. */
export const systemQuery = queryOptions({
  queryKey: ['system'],
  queryFn: ({ signal }) => unwrap(api.GET('/system', { signal }))
});
