import { useQuery } from '@tanstack/react-query';
import type { Root } from 'hast';

const DEADLINE_MILLIS = 5000;

/**
 * The trees of Markdown texts: undefined while they are parsed, null if they are too complex.
 * The parser runs in a worker and is stopped after 5 s: a hostile file must not block the page.
 */
export function useMarkdown(texts: readonly string[]): Root[] | null | undefined {
  return useQuery({
    queryKey: ['markdown', texts],
    queryFn: ({ signal }) => parseInWorker(texts, signal),
    // The result depends only on the texts, so no change of data makes it stale.
    staleTime: 'static',
    gcTime: 0
  }).data;
}

function parseInWorker(texts: readonly string[], signal: AbortSignal): Promise<Root[] | null> {
  const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
  const end = AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MILLIS)]);
  return new Promise<Root[] | null>(resolve => {
    end.addEventListener('abort', () => resolve(null));
    // The parser overflows its stack if a text is nested very deeply.
    worker.onerror = () => resolve(null);
    worker.onmessage = ({ data }: MessageEvent<Root[] | null>) => resolve(data);
    worker.postMessage(texts);
  }).finally(() => worker.terminate());
}
