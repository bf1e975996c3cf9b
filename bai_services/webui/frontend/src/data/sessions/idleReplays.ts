import { useMutation } from '@tanstack/react-query';
import { api, unwrap } from '../client';

const DAY_SECONDS = 86_400;

/** Compute which sessions a utilization checker would have stopped in the last `days` days. */
export function useIdleReplay() {
  return useMutation({
    mutationFn: ({ checker, days }: { checker: string; days: number }) => {
      const body = { checker, period_seconds: days * DAY_SECONDS };
      return unwrap(api.POST('/idle-replays', { body: body as never }));
    }
  });
}
