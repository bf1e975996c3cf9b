import {
  MutationCache,
  QueryCache,
  QueryClient,
  type InvalidateOptions,
  type InvalidateQueryFilters
} from '@tanstack/react-query';
import { ApiError } from './client';
import { reportFailure } from './connection';

const STALE_MILLIS = 15_000;
const MAX_RETRIES = 2;
// Statuses after which cached data must not be shown: account refused, forbidden, not found.
const REFUSALS: readonly number[] = [401, 403, 404];

const isRefusal = (error: Error) => error instanceof ApiError && REFUSALS.includes(error.status);

class Client extends QueryClient {
  /**
   * Read the queries again, also those whose first request is still open: TanStack Query would take
   * its response, which may be from before the change.
   */
  override async invalidateQueries(
    filters: InvalidateQueryFilters = {},
    options?: InvalidateOptions
  ): Promise<void> {
    const open = new Set(
      this.getQueryCache()
        .findAll({ ...filters, fetchStatus: 'fetching' })
        .filter(({ state }) => state.data === undefined)
    );
    await super.invalidateQueries(filters, options);
    if (open.size > 0) {
      await super.invalidateQueries({ predicate: query => open.has(query) }, options);
    }
  }
}

/** The cache of API responses; changes of sessions invalidate the affected queries (events.ts). */
export const queries = new Client({
  queryCache: new QueryCache({
    onError: (error, query) => {
      reportFailure(error);
      if (isRefusal(error)) {
        query.setState({ data: undefined, dataUpdatedAt: 0 });
      }
    }
  }),
  mutationCache: new MutationCache({ onError: reportFailure }),
  defaultOptions: {
    // With another mode, requests would wait silently while the browser is offline, even requests
    // to this machine.
    mutations: { networkMode: 'always' },
    queries: {
      networkMode: 'always',
      staleTime: STALE_MILLIS,
      // A retry of a client error would fail again.
      retry: (failures, error) =>
        failures < MAX_RETRIES &&
        !(error instanceof ApiError && error.status >= 400 && error.status < 500)
    }
  }
});
