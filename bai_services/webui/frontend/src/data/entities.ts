import { keepPreviousData, queryOptions, useMutation } from '@tanstack/react-query';
import type { ListQuery } from '../components/list/listSearch';
import { api, unwrap } from './client';
import { queries } from './queries';

/** An object of the installation, such as a user or an agent, as the API returns it. */
export type Item = Record<string, unknown>;

/** Paths of the collections of the administration pages. */
export type EntityPath =
  | '/users'
  | '/sign-up-invitations'
  | '/keypairs'
  | '/domains'
  | '/projects'
  | '/keypair-policies'
  | '/user-policies'
  | '/project-policies'
  | '/presets'
  | '/images'
  | '/component-settings'
  | '/image-pulls'
  | '/custom-images'
  | '/image-registries'
  | '/resource-groups'
  | '/agents'
  | '/agent-invitations'
  | '/agent-summaries'
  | '/devices'
  | '/storage-hosts'
  | '/quota-scopes'
  | '/schedules'
  | '/session-templates'
  | '/budgets'
  | '/overflow-rules'
  | '/provisioned-machines'
  | '/announcements'
  | '/maintenances'
  | '/reservations'
  | '/audit-log'
  | '/audit-log/mine'
  | '/idle-checkers'
  | '/idle-checker-bindings'
  | '/idle-decisions'
  | '/notifications'
  | '/webhooks'
  | `/webhooks/${string}/deliveries`
  | '/models'
  | '/model-imports'
  | '/vfolders'
  | '/pipelines'
  | '/pipeline-runs'
  | '/pipeline-schedules'
  | '/pipeline-triggers'
  | '/pipeline-templates'
  | '/folder-imports'
  | '/endpoints'
  | `/endpoints/${string}/replicas`
  | `/endpoints/${string}/audit-log`
  | `/endpoints/${string}/scalings`
  | `/endpoints/${string}/usage`
  | `/endpoints/${string}/tokens`;

export interface ItemPage {
  items: Item[];
  total: number;
}

// The routes of the collections have the same form and parameters, so the types of one collection
// are used for all.
const listOf = (path: EntityPath) => path as '/users';
const oneOf = (path: EntityPath) => `${path}/{key}` as '/users/{key}';

export const entitiesQuery = (path: EntityPath, list: ListQuery) =>
  queryOptions({
    queryKey: ['entities', path, list],
    queryFn: async ({ signal }) => {
      const { limit, offset, sort, filters } = list;
      const query = { limit, offset, ...(sort ? { sort } : {}), ...filters };
      const page: unknown = await unwrap(api.GET(listOf(path), { signal, params: { query } }));
      return page as ItemPage;
    },
    placeholderData: keepPreviousData
  });

// Queries of the banners above every page, which show these collections.
const BANNERS: Partial<Record<EntityPath, string>> = {
  '/announcements': 'announcements',
  '/maintenances': 'maintenances'
};

function refresh(path?: EntityPath) {
  const banner = path && BANNERS[path];
  if (banner) {
    void queries.invalidateQueries({ queryKey: [banner] });
  }
  return queries.invalidateQueries({ queryKey: ['entities'] });
}

export interface Change {
  /** Key of the object to change; undefined: create an object. */
  key?: string | undefined;
  values: Item;
}

export function useSaveEntity(path: EntityPath) {
  return useMutation({
    mutationFn: async ({ key, values }: Change): Promise<Item> => {
      const body = values as never;
      const saved: unknown = await unwrap(
        key === undefined
          ? api.POST(listOf(path), { body })
          : api.PATCH(oneOf(path), { params: { path: { key } }, body })
      );
      return saved as Item;
    },
    onSettled: () => refresh(path)
  });
}

export function useDeleteEntity(path: EntityPath) {
  return useMutation({
    mutationFn: (key: string) => unwrap(api.DELETE(oneOf(path), { params: { path: { key } } })),
    onSettled: () => refresh(path)
  });
}

/**
 * End all sign-ins and tokens of a user, unlock the account after failed sign-ins, remove the user's
 * authenticator for one-time codes, or approve the account of a sign-up.
 */
export function useUserAction(action: 'sign-out' | 'unlock' | 'reset-authenticator' | 'approve') {
  return useMutation({
    mutationFn: async (key: string): Promise<void> => {
      const params = { path: { key } };
      switch (action) {
        case 'unlock':
          await unwrap(api.POST('/users/{key}/unlock', { params }));
          break;
        case 'sign-out':
          await unwrap(api.POST('/users/{key}/sign-out', { params }));
          break;
        case 'approve':
          await unwrap(api.POST('/users/{key}/approve', { params }));
          break;
        case 'reset-authenticator':
          await unwrap(api.DELETE('/users/{key}/authenticator', { params }));
          break;
      }
    },
    onSettled: () => refresh()
  });
}

/** A page of a project's members, with only the members whose user name contains `name`. */
export const membersQuery = (
  project: string,
  name: string,
  { limit, offset }: { limit: number; offset: number }
) =>
  queryOptions({
    queryKey: ['entities', '/projects', 'members', project, name, limit, offset],
    queryFn: ({ signal }) => {
      const query = { limit, offset, ...(name ? { username__contains: name } : {}) };
      const params = { path: { key: project }, query };
      return unwrap(api.GET('/projects/{key}/members', { signal, params }));
    },
    placeholderData: keepPreviousData
  });

export function useChangeMember(project: string) {
  return useMutation({
    mutationFn: ({ user, isMember }: { user: string; isMember: boolean }) => {
      const params = { path: { key: project, user } };
      return unwrap(
        isMember
          ? api.PUT('/projects/{key}/members/{user}', { params })
          : api.DELETE('/projects/{key}/members/{user}', { params })
      );
    },
    onSettled: () => refresh()
  });
}

/** The object in which the field named by `id` has the value `key`, or undefined. */
export const entityQuery = (path: EntityPath, id: string, key: string) =>
  queryOptions({
    ...entitiesQuery(path, { limit: 1, offset: 0, sort: '', filters: { [id]: key } }),
    select: page => page.items[0]
  });
