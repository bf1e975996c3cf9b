import { queryOptions, useMutation } from '@tanstack/react-query';
import type { TFunction } from 'i18next';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas, type Session } from '../client';
import { queries } from '../queries';

export type SessionApp = Schemas['SessionApp'];

/** The apps of a session: built-in apps, apps of its image, and its requested ports. */
export function appsQuery(id: string) {
  return queryOptions({
    queryKey: ['session-apps', id],
    queryFn: () => unwrap(api.GET('/sessions/{key}/apps', { params: { path: { key: id } } }))
  });
}

/**
 * Translation keys of the app titles that are not product names. A Map, because a title can come
 * from an image label and could be the name of an inherited object property such as `constructor`.
 */
const TITLES = new Map([
  ['Terminal', 'terminal'],
  ['File browser', 'filebrowser'],
  ['SSH and SFTP', 'ssh'],
  ['VS Code (desktop)', 'vscode-desktop'],
  ['Desktop (VNC)', 'vnc'],
  ['Desktop (RDP)', 'rdp']
]);

/** The title of an app in the user's language. */
export function appTitle(t: TFunction, { name, title, port }: SessionApp): string {
  const key = name === `port-${port}` ? 'port' : TITLES.get(title);
  return key ? t(`apps.title-${key}`, { port }) : title;
}

/** The URL of an app. A request to it starts the app's process if necessary. */
export function appAddress(session: Session, app: SessionApp): string {
  return session.url + app.path;
}

// The manager waits 10 s for the server, and the session starts it in a few seconds.
const MAX_SERVER_REQUESTS = 18;

/** Start the server of a running batch session, and wait until it is ready. */
export function useStartServer(id: string) {
  const start = () => unwrap(api.POST('/sessions/{key}/server', { params: { path: { key: id } } }));
  return useMutation({
    mutationFn: async () => {
      for (let count = 1; count < MAX_SERVER_REQUESTS; count += 1) {
        if ((await start()).is_ready) {
          return;
        }
      }
    }
  });
}

export type AppShare = Schemas['AppShare'];
export type NewAppShare = Partial<Schemas['NewAppShare']> & { app: string };

/** The shares of a session's apps. */
export const sharesQuery = (id: string) =>
  queryOptions({
    queryKey: ['app-shares', id],
    queryFn: ({ signal }) =>
      allItems(query => {
        const params = { path: { key: id }, query };
        return unwrap(api.GET('/sessions/{key}/app-shares', { signal, params }));
      })
  });

/** Share an app of a session, or revoke a share. */
export function useChangeShares(id: string) {
  return useMutation({
    mutationFn: async (change: { share: NewAppShare } | { revoked: string }) => {
      if ('share' in change) {
        const body = change.share as Schemas['NewAppShare'];
        return unwrap(
          api.POST('/sessions/{key}/app-shares', { params: { path: { key: id } }, body })
        );
      }
      const params = { path: { key: id, share: change.revoked } };
      return unwrap(api.DELETE('/sessions/{key}/app-shares/{share}', { params }));
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ['app-shares', id] })
  });
}
