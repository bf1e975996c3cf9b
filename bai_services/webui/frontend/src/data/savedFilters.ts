import { useQuery } from '@tanstack/react-query';
import { meQuery } from './accounts/me';
import { Stored, useStored } from './stored';

const MAX_SAVED = 20;

/** A named state of a list: the part of the URL that selects and sorts its rows. */
export interface SavedFilter {
  list: string;
  name: string;
  search: Record<string, unknown>;
}

const isSaved = (value: unknown): value is SavedFilter => {
  const { list, name, search } = (value ?? {}) as Record<string, unknown>;
  return (
    typeof list === 'string' &&
    typeof name === 'string' &&
    typeof search === 'object' &&
    search !== null
  );
};

export const readSaved = (stored: unknown): SavedFilter[] =>
  Array.isArray(stored) ? stored.filter(isSaved) : [];

/**
 * Add a saved filter to its list; it replaces a filter with the same name. Each list keeps its 20
 * newest filters.
 */
export const withSaved = (all: readonly SavedFilter[], added: SavedFilter): SavedFilter[] => {
  const isOther = ({ list, name }: SavedFilter) => list !== added.list || name !== added.name;
  const ofList = all.filter(({ list }) => list === added.list).filter(isOther);
  const others = all.filter(({ list }) => list !== added.list);
  return [...others, ...ofList.slice(1 - MAX_SAVED), added];
};

const saved = new Stored('bai-filters', readSaved);

/** The saved filters of a list of the signed-in user, in this browser. */
export function useSavedFilters(list: string) {
  const { data: me } = useQuery(meQuery);
  const all = useStored(saved);
  const listKey = `${me?.username ?? ''}/${list}`;
  return {
    items: all.filter(filter => filter.list === listKey),
    save: (name: string, search: Record<string, unknown>) =>
      saved.set(withSaved(all, { list: listKey, name, search })),
    remove: (name: string) =>
      saved.set(all.filter(filter => filter.list !== listKey || filter.name !== name))
  };
}
