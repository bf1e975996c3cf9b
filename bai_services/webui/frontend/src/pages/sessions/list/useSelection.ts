import { useState } from 'react';
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
  select: (ids: string[]) => void;
  /** All live sessions that match the filters; undefined if they are not selected. */
  all: SessionList | undefined;
  /** Number of live sessions that match the filters, if the whole page is selected and more match. */
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
  const live = page.filter(session => !isEnded(session));
  const sessions = live.filter(({ id }) => isAll || ids.includes(id));
  const isPageSelected = live.length > 0 && sessions.length === live.length;
  const hasTotal = isAll || isPageSelected;
  const { data: total } = useQuery({ ...sessionCountQuery(filters), enabled: hasTotal });
  const select = (chosen: string[]) => {
    setIds(chosen);
    setAllOf(undefined);
  };
  return {
    sessions,
    select,
    all: isAll ? { limit: MAX_LIMIT, offset: 0, sort: list.sort, filters } : undefined,
    total: hasTotal && total !== undefined && total > live.length ? total : undefined,
    selectAll: () => setAllOf(key),
    clear: () => select([])
  };
}
