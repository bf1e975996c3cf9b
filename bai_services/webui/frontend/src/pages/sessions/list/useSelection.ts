import { useCallback, useMemo, useState } from 'react';
import { useQuery } from '@tanstack/react-query';
import { MAX_LIMIT } from '../../../data/allItems';
import {
  isEnded,
  LIVE_STATUSES,
  sessionCountQuery,
  type Session,
  type SessionList
} from '../../../data/sessions/sessions';

export interface Selection {
  /** The selected sessions of the page. */
  sessions: Session[];
  /** Their ids. */
  ids: string[];
  select: (ids: string[]) => void;
  /**
   * Query for the live sessions that match the filters, at most `MAX_LIMIT`; undefined if not all
   * are selected.
   */
  all: SessionList | undefined;
  /**
   * Number of live sessions that match the filters. Undefined if the page shows all of them, or if
   * only a part of the page is selected.
   */
  total: number | undefined;
  selectAll: () => void;
  clear: () => void;
}

/** The selection in a list: sessions of the page, or all sessions that match the filters. */
export function useSelection(list: SessionList, page: readonly Session[]): Selection {
  const [ids, setIds] = useState<string[]>([]);
  // The filters for which all sessions are selected: a change of the filters ends the selection.
  const [allOf, setAllOf] = useState<string>();
  const filters = { status__in: LIVE_STATUSES.join(','), ...list.filters };
  const key = JSON.stringify(filters);
  const isAll = allOf === key;
  const live = useMemo(() => page.filter(session => !isEnded(session)), [page]);
  const sessions = useMemo(
    () => live.filter(({ id }) => isAll || ids.includes(id)),
    [live, isAll, ids]
  );
  const selected = useMemo(() => sessions.map(({ id }) => id), [sessions]);
  const isPageSelected = live.length > 0 && sessions.length === live.length;
  const hasTotal = isAll || isPageSelected;
  const { data: total } = useQuery({ ...sessionCountQuery(filters), enabled: hasTotal });
  const select = useCallback((chosen: string[]) => {
    setIds(chosen);
    setAllOf(undefined);
  }, []);
  return {
    sessions,
    ids: selected,
    select,
    all: isAll ? { limit: MAX_LIMIT, offset: 0, sort: list.sort, filters } : undefined,
    total: hasTotal && total !== undefined && total > live.length ? total : undefined,
    selectAll: () => setAllOf(key),
    clear: () => select([])
  };
}
