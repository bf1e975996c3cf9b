import { queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../client';

export const meQuery = queryOptions({
  queryKey: ['me'],
  queryFn: ({ signal }) => unwrap(api.GET('/me', { signal }))
});
