import { useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';

export type IdleReplay = Schemas['IdleReplay'];

/** Compute which sessions a utilization checker would have stopped in the last `seconds` seconds. */
export function useIdleReplay() {
  return useMutation({
    mutationFn: ({ checker, seconds }: { checker: string; seconds: number }) => {
      const body = { checker, period_seconds: seconds };
      return unwrap(api.POST('/idle-replays', { body: body as never }));
    }
  });
}
