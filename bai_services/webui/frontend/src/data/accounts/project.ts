import { useQuery } from '@tanstack/react-query';
import { meQuery } from './me';
import { usePreferences } from './preferences';

/** The project chosen in the header; undefined for all of the user's projects. */
export function useChosenProject() {
  const { data: me } = useQuery(meQuery);
  const { project } = usePreferences();
  return me?.projects.find(({ id }) => id === project);
}
