import { useMutation } from '@tanstack/react-query';
import { api, unwrap } from './client';

/** Verify the whole hash chain of the audit log, in as many requests as needed. */
export function useVerifyChain() {
  return useMutation({
    mutationFn: async () => {
      let checked = 0;
      let after = 0;
      for (;;) {
        const part = await unwrap(
          api.GET('/audit-log/verification', { params: { query: { after: String(after) } } })
        );
        checked += part.checked;
        if (part.is_complete || part.problem) {
          return { ...part, checked };
        }
        after = part.position;
      }
    }
  });
}
