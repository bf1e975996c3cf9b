import { useSyncExternalStore } from 'react';

const MAX_ENTRIES = 200;

/** A request of this browser tab to the API. */
export interface LoggedRequest {
  number: number;
  at: string;
  method: string;
  path: string;
  /** 0: there was no response. */
  status: number;
  millis: number;
}

/** A path with its escape sequences decoded; unchanged if one of them is malformed. */
export function readablePath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

const listeners = new Set<() => void>();
let entries: readonly LoggedRequest[] = [];
let nextNumber = 1;

const replaceEntries = (replacement: readonly LoggedRequest[]) => {
  entries = replacement;
  listeners.forEach(listener => listener());
};

/** Add a request to the log. The log keeps the latest `MAX_ENTRIES` requests. */
export function logRequest(entry: Omit<LoggedRequest, 'number'>): void {
  replaceEntries([{ ...entry, number: nextNumber }, ...entries].slice(0, MAX_ENTRIES));
  nextNumber += 1;
}

export const clearRequestLog = () => replaceEntries([]);

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

export const useRequestLog = () => useSyncExternalStore(subscribe, () => entries);
