import { useCallback, useLayoutEffect, useRef } from 'react';

/** Return a callback with a stable identity that calls the `action` of the latest render. */
export function useLatest<A extends unknown[], R>(action: (...args: A) => R): (...args: A) => R {
  const latest = useRef(action);
  useLayoutEffect(() => {
    latest.current = action;
  });
  return useCallback((...args: A) => latest.current(...args), []);
}
