import { useState } from 'react';

const MAX_STEPS = 100;

interface States<T> {
  past: readonly T[];
  present: T;
  future: readonly T[];
}

/** A state with undo and redo. */
export function useHistory<T>(first: T) {
  const [states, setStates] = useState<States<T>>({ past: [], present: first, future: [] });
  const { past, present, future } = states;
  const before = past.at(-1);
  const after = future[0];
  return {
    present,
    canUndo: before !== undefined,
    canRedo: after !== undefined,
    set: (next: T) =>
      setStates(old => ({
        past: [...old.past, old.present].slice(-MAX_STEPS),
        present: next,
        future: []
      })),
    /** Undo the last change; return the state before it, or undefined. */
    undo: () => {
      if (before !== undefined) {
        setStates({ past: past.slice(0, -1), present: before, future: [present, ...future] });
      }
      return before;
    },
    redo: () => {
      if (after !== undefined) {
        setStates({ past: [...past, present], present: after, future: future.slice(1) });
      }
      return after;
    }
  };
}
