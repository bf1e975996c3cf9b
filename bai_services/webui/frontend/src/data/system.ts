import { queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from './client';

export type SystemInfo = Schemas['SystemInfo'];
export type Package = Schemas['Package'];

/** Versions, licences, health, database size, and numbers of sessions and agents. */
export const systemQuery = queryOptions({
  queryKey: ['system'],
  queryFn: ({ signal }) => unwrap(api.GET('/system', { signal }))
});
