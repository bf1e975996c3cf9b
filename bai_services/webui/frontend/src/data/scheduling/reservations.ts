import { queryOptions } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas } from '../client';

export type Reservation = Schemas['Reservation'];

const OPEN: readonly string[] = ['requested', 'approved'];

/** The requested and approved reservations that have not ended. */
export const openReservationsQuery = queryOptions({
  queryKey: ['entities', '/reservations', 'open'],
  queryFn: ({ signal }) =>
    allItems(page => {
      const query = { ...page, sort: 'starts_at' };
      return unwrap(api.GET('/reservations', { signal, params: { query } }));
    }),
  select: reservations =>
    reservations.filter(one => OPEN.includes(one.state) && Date.parse(one.ends_at) > Date.now())
});

/** The pending sessions that start later if a requested reservation is approved. */
export const delaysQuery = (key: string) =>
  queryOptions({
    queryKey: ['entities', '/reservations', 'delays', key],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/reservations/{key}/delays', { signal, params: { path: { key } } }))
  });

/** The running sessions that can delay an open reservation. */
export const conflictsQuery = (key: string) =>
  queryOptions({
    queryKey: ['entities', '/reservations', 'conflicts', key],
    queryFn: ({ signal }) =>
      unwrap(api.GET('/reservations/{key}/conflicts', { signal, params: { path: { key } } }))
  });
