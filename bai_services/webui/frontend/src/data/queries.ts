import { QueryClient } from '@tanstack/react-query';
import { ApiError } from './client';

const STALE_MILLIS = 15_000;
const MAX_RETRIES = 2;

/** The cache of API responses; changes of sessions invalidate the affected queries (events.ts). */
export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: STALE_MILLIS,
      // A retry of a client error would fail again.
      retry: (failures, error) =>
        failures < MAX_RETRIES &&
        !(error instanceof ApiError && error.status >= 400 && error.status < 500)
    }
  }
});
