import { queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from './client';
import { entitiesQuery } from './entities';
import { queries } from './queries';

export type NotificationSettings = Schemas['NotificationSettingsView'];
export type NotificationSettingsChange = Partial<Schemas['NotificationSettingsChange']>;
export type NotificationEvent = Schemas['NotificationEvent'];

export const CHANNELS = ['web', 'mail', 'webhook', 'slack'] as const;
const MAX_EVENTS = 200;
const MAX_UNREAD = 20;
const UNREAD_REFRESH_MILLIS = 30_000;

/** The compiler reports events of the API that are missing here, and events unknown to the API. */
const EVENTS: Record<NotificationEvent['name'], true> = {
  'session-running': true,
  'session-failed': true,
  'session-ended': true,
  'session-pending-long': true,
  'session-stops-soon': true,
  'session-stops-now': true,
  'session-preempted': true,
  'session-continues': true,
  'session-requeued': true,
  'session-runs-again': true,
  'run-succeeded': true,
  'run-failed': true,
  'approval-requested': true,
  'endpoint-failed': true,
  'folder-shared': true,
  'quota-nearly-full': true,
  'budget-warning': true,
  announcement: true,
  'maintenance-planned': true,
  'reservation-decided': true,
  'reservation-requested': true,
  'agent-lost': true,
  'disk-full': true,
  'storage-host-unreachable': true,
  'mail-failing': true
};

/** Names of all events; webhooks of administrators can choose any of them. */
export const EVENT_NAMES = Object.keys(EVENTS);

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

/** The newest unread notifications, and the number of all unread ones. */
export const unreadNotificationsQuery = queryOptions({
  ...entitiesQuery('/notifications', {
    limit: MAX_UNREAD,
    offset: 0,
    sort: '-created_at',
    filters: { is_read: 'false' }
  }),
  refetchInterval: UNREAD_REFRESH_MILLIS
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

/** Read the lists of notifications again. */
export const refreshNotifications = () =>
  queries.invalidateQueries({ queryKey: ['entities', '/notifications'] });

export function useMarkAllRead() {
  return useMutation({
    mutationFn: () => unwrap(api.PUT('/notifications/read')),
    onSettled: refreshNotifications
  });
}

export function useMarkRead() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.PUT('/notifications/{key}/read', { params: { path: { key } } })),
    onSettled: refreshNotifications
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
