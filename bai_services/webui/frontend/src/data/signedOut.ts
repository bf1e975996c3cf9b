import { useSyncExternalStore } from 'react';

let isSignedOut = false;
const listeners = new Set<() => void>();

/** The API rejected the cookies: the sign-in of this browser has ended. */
export function markSignedOut(): void {
  isSignedOut = true;
  listeners.forEach(listener => listener());
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

export const useIsSignedOut = () => useSyncExternalStore(subscribe, () => isSignedOut);
