import { createContext, useContext } from 'react';
import type { SessionOptions, SessionPreview } from '../../data/sessions/launch';
import type { LaunchForm } from './form';

/** Context that the sections of the launcher share. */
export interface Launcher {
  form: LaunchForm;
  change: (changes: Partial<LaunchForm>) => void;
  options: SessionOptions | undefined;
  /** The latest preview of the form; a change of the form updates it after a debounce interval. */
  preview: SessionPreview | undefined;
}

export const LauncherContext = createContext<Launcher | undefined>(undefined);

export function useLauncher(): Launcher {
  const launcher = useContext(LauncherContext);
  if (!launcher) {
    throw new Error('useLauncher needs a LauncherContext');
  }
  return launcher;
}

/** The problem of a field, such as `mounts.0.path`, as the server reports it. */
export const problemOf = (preview: SessionPreview | undefined, field: string) =>
  preview?.problems.find(problem => problem.field === field)?.problem;
