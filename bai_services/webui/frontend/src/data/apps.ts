import { queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas, type Session } from './client';

export type SessionApp = Schemas['SessionApp'];

/** The apps that a session offers, from its image and its requested ports. */
export function appsQuery(id: string) {
  return queryOptions({
    queryKey: ['session-apps', id],
    queryFn: () => unwrap(api.GET('/sessions/{key}/apps', { params: { path: { key: id } } }))
  });
}

/** The address of an app; a process starts when its address is opened. */
export function appAddress(session: Session, app: SessionApp): string {
  return session.url + app.path;
}
