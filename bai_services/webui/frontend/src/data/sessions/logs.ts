import { useEffect, useState } from 'react';
import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query';
import { config } from '../../config';
import { api, ApiError, unreachable, unwrap, type Schemas } from '../client';
import { appended, MAX_LINES, type Log } from './logLines';

export type LogHit = Schemas['LogHit'];

interface Chunk {
  text: string;
  is_gap: boolean;
}

const EMPTY: Log = { lines: [], dropped: 0, hasGap: false, state: 'loading' };

/**
 * Follow the output of a kernel while the component is mounted. A change of `attempt` restarts the
 * stream.
 */
export function useLog(id: string, kernel: string, attempt: number): Log {
  const [log, setLog] = useState<Log & { source?: string }>(EMPTY);
  const source = `${id} ${kernel} ${attempt}`;
  useEffect(() => {
    const address = `${config.api}/sessions/${encodeURIComponent(id)}/log-stream`;
    const stream = new EventSource(`${address}?kernel=${encodeURIComponent(kernel)}`);
    const fail = (error: ApiError) => {
      stream.close();
      setLog(old => ({ ...old, source, state: 'ended', error }));
    };
    // After a reconnect, the stream sends the output from its start.
    stream.onopen = () => setLog({ ...EMPTY, source, state: 'live' });
    stream.onerror = () => {
      if (stream.readyState === EventSource.CLOSED) {
        void reasonOf(id, kernel).then(fail);
      }
    };
    stream.addEventListener('log', event => {
      const chunk = JSON.parse((event as MessageEvent<string>).data) as Chunk;
      setLog(old => ({ ...appended(old, chunk.text, chunk.is_gap), source }));
    });
    stream.addEventListener('end', () => {
      stream.close();
      setLog(old => ({ ...old, source, state: 'ended' }));
    });
    stream.addEventListener('error', event => {
      if (event instanceof MessageEvent) {
        const body = JSON.parse(event.data as string) as { error: string; message: string };
        fail(new ApiError(0, body.error, body.message));
      }
    });
    return () => stream.close();
  }, [id, kernel, source]);
  return log.source === source ? log : EMPTY;
}

/** Fetch the error of a refused stream, because an EventSource does not expose the response. */
async function reasonOf(id: string, kernel: string): Promise<ApiError> {
  const query = { lines: '1', kernel };
  try {
    await unwrap(api.GET('/sessions/{key}/logs', { params: { path: { key: id }, query } }));
  } catch (error) {
    if (error instanceof ApiError) {
      return error;
    }
  }
  return unreachable();
}

/** Lines of a kernel's output that contain a text, with their numbers. */
export const logSearchQuery = (id: string, kernel: string, search: string) =>
  queryOptions({
    queryKey: ['logs', id, kernel, search],
    enabled: search !== '',
    queryFn: async ({ signal }) => {
      const query = { kernel, search, lines: String(MAX_LINES) };
      const answer = await unwrap(
        api.GET('/sessions/{key}/logs', { signal, params: { path: { key: id }, query } })
      );
      return answer.matches ?? [];
    }
  });

/** The user's ended sessions whose logs contain a text, the newest first. */
export const storedLogsQuery = (search: string) =>
  infiniteQueryOptions({
    queryKey: ['stored-logs', search],
    enabled: search !== '',
    initialPageParam: '',
    queryFn: ({ signal, pageParam }) =>
      unwrap(api.GET('/session-logs', { signal, params: { query: { search, after: pageParam } } })),
    getNextPageParam: page => page.after ?? undefined
  });
