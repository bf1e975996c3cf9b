import { useSyncExternalStore } from 'react';

/** A value in the browser's local storage, shared by all components and tabs. */
export class Stored<T> {
  private value: T | undefined;
  private hasSubscribed = false;
  private readonly listeners = new Set<() => void>();

  /** `read` validates the stored value, because the storage can contain anything. */
  constructor(
    private key: string,
    private readonly read: (stored: unknown) => T
  ) {}

  /** Use another key, for example that of another user. */
  open(key: string): void {
    if (key !== this.key) {
      this.key = key;
      this.replace(undefined);
    }
  }

  get(): T {
    return (this.value ??= this.read(parsed(localStorage.getItem(this.key))));
  }

  set(value: T): void {
    localStorage.setItem(this.key, JSON.stringify(value));
    this.replace(value);
  }

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    this.followOtherTabs();
    return () => void this.listeners.delete(listener);
  };

  private followOtherTabs(): void {
    if (this.hasSubscribed) {
      return;
    }
    this.hasSubscribed = true;
    // Read the value again, because another tab can have changed it before this subscription.
    this.value = undefined;
    window.addEventListener('storage', event => {
      if (event.key === this.key || event.key === null) {
        this.replace(undefined);
      }
    });
  }

  private replace(value: T | undefined): void {
    this.value = value;
    this.listeners.forEach(listener => listener());
  }
}

function parsed(text: string | null): unknown {
  try {
    return JSON.parse(text ?? 'null');
  } catch {
    return null;
  }
}

export const useStored = <T>(stored: Stored<T>) =>
  useSyncExternalStore(stored.subscribe, () => stored.get());
