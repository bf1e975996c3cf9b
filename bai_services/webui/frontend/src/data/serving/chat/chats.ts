import { queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from '../../allItems';
import { api, ApiError, unwrap, type Schemas } from '../../client';
import { queries } from '../../queries';
import { refreshEndpoints, type Endpoint } from '../endpoints';
import { readModels } from './calls';

export type Chat = Schemas['Chat'];
export type ChatSummary = Schemas['ChatSummary'];
export type StoredCard = Schemas['ChatCard'];

const CHATS = ['chats'];
const ENDPOINTS_REFRESH_MILLIS = 15_000;
const RETRY_MILLIS = 5_000;
const MAX_RETRIES = 10;

export const refreshChats = () => queries.invalidateQueries({ queryKey: CHATS });

/** The user's chats (at most 100), the last changed one first. */
export const chatsQuery = queryOptions({
  queryKey: CHATS,
  queryFn: ({ signal }) =>
    allItems(page => unwrap(api.GET('/chats', { signal, params: { query: page } })))
});

export const readChat = (key: string) =>
  unwrap(api.GET('/chats/{key}', { params: { path: { key } } }));

export const createChat = (cards: StoredCard[]) =>
  unwrap(api.POST('/chats', { body: { title: '', cards } }));

export const replaceCards = (key: string, version: number, cards: StoredCard[]) =>
  unwrap(
    api.PATCH('/chats/{key}', {
      params: { path: { key } },
      body: { cards, version } as Schemas['ChatChange']
    })
  );

export function useRenameChat() {
  return useMutation({
    mutationFn: ({ id, title }: { id: string; title: string }) =>
      unwrap(
        api.PATCH('/chats/{key}', {
          params: { path: { key: id } },
          body: { title } as Schemas['ChatChange']
        })
      ),
    onSettled: refreshChats
  });
}

export function useDeleteChat() {
  return useMutation({
    mutationFn: (key: string) => unwrap(api.DELETE('/chats/{key}', { params: { path: { key } } })),
    onSettled: refreshChats
  });
}

/** Endpoints to which the user may send messages now. */
export const chatEndpointsQuery = queryOptions({
  queryKey: ['entities', '/endpoints', 'chat'],
  queryFn: async ({ signal }) => {
    const found = await allItems(page =>
      unwrap(api.GET('/endpoints', { signal, params: { query: { ...page, sort: 'name' } } }))
    );
    return found.filter(isServing);
  },
  refetchInterval: ENDPOINTS_REFRESH_MILLIS
});

/** Whether an endpoint has a replica, or starts one for the first request. */
export const isServing = ({ status, ready_replicas, scaling }: Endpoint) =>
  status !== 'paused' &&
  status !== 'stopping' &&
  status !== 'failed' &&
  (ready_replicas > 0 || scaling?.min_replicas === 0);

export const modelsQuery = (endpoint: Endpoint | undefined, basePath: string) =>
  queryOptions({
    queryKey: ['chat-models', endpoint?.id, basePath],
    queryFn: async ({ signal }) => {
      const models = endpoint ? await readModels(endpoint, basePath, signal) : [];
      if (endpoint?.ready_replicas === 0) {
        // Read the endpoints again: the request for the models has started a replica.
        void refreshEndpoints();
      }
      return models;
    },
    enabled: endpoint !== undefined,
    // The gateway has already waited for the first replica.
    retry: (count, error) =>
      error instanceof ApiError && error.status === 503 && count < MAX_RETRIES,
    retryDelay: RETRY_MILLIS
  });
