type Texts = Record<string, string>;

/** Texts by area from the files of one language: `./sessions.json` is the area `sessions`. */
export function textsOf(files: Record<string, Texts>): Record<string, Texts> {
  return Object.fromEntries(
    Object.entries(files).map(([path, texts]) => [path.replace(/^.*\/|\.json$/g, ''), texts])
  );
}

/**
 * Add the titles of events: as the area `notification-events`, and as the choices of the fields
 * `event` and `events`.
 */
export function withEvents(areas: Record<string, Texts>, events: Texts): Record<string, Texts> {
  const choices = (key: string) =>
    Object.fromEntries(Object.entries(events).map(([name, text]) => [`${key}-${name}`, text]));
  return {
    ...areas,
    'notification-events': events,
    webhooks: { ...areas['webhooks'], ...choices('events') },
    notifications: { ...areas['notifications'], ...choices('event') },
    'webhook-deliveries': { ...areas['webhook-deliveries'], ...choices('event') }
  };
}
