import { queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from './client';
import { queries } from './queries';

export type NotificationSettings = Schemas['NotificationSettingsView'];
export type NotificationSettingsChange = Partial<Schemas['NotificationSettingsChange']>;
export type NotificationEvent = Schemas['NotificationEvent'];

export const CHANNELS = ['web', 'mail', 'webhook', 'slack'] as const;
const MAX_EVENTS = 200;

/** Names of all events; webhooks of administrators can choose any of them. */
export const EVENT_NAMES = [
  'session-running',
  'session-failed',
  'session-ended',
  'session-pending-long',
  'session-stops-soon',
  'session-stops-now',
  'session-preempted',
  'folder-shared',
  'quota-nearly-full',
  'budget-warning',
  'announcement',
  'maintenance-planned',
  'agent-lost',
  'disk-full',
  'storage-host-unreachable',
  'mail-failing'
] as const;

export const notificationSettingsQuery = queryOptions({
  queryKey: ['notification-settings'],
  queryFn: ({ signal }) => unwrap(api.GET('/notification-settings', { signal }))
});

/** The events that the user can be notified of, with the user's channels. */
export const notificationEventsQuery = queryOptions({
  queryKey: ['notification-settings', 'events'],
  queryFn: async ({ signal }) => {
    const params = { query: { limit: MAX_EVENTS } };
    return (await unwrap(api.GET('/notification-events', { signal, params }))).items;
  }
});

export function useChangeNotificationSettings() {
  return useMutation({
    mutationFn: (body: NotificationSettingsChange) =>
      unwrap(
        api.PATCH('/notification-settings', { body: body as Schemas['NotificationSettingsChange'] })
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: ['notification-settings'] })
  });
}

const refreshList = () => queries.invalidateQueries({ queryKey: ['entities', '/notifications'] });

export function useMarkAllRead() {
  return useMutation({
    mutationFn: () => unwrap(api.PUT('/notifications/read')),
    onSettled: refreshList
  });
}

export function useMarkRead() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.PUT('/notifications/{key}/read', { params: { path: { key } } })),
    onSettled: refreshList
  });
}

const refreshWebhooks = () => queries.invalidateQueries({ queryKey: ['entities'] });

/** Call a webhook with a test message; the result says whether it was accepted. */
export function useTestWebhook() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.POST('/webhooks/{key}/test', { params: { path: { key } } })),
    onSettled: refreshWebhooks
  });
}

export function useRenewWebhookSecret() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.POST('/webhooks/{key}/secret', { params: { path: { key } } }))
  });
}
