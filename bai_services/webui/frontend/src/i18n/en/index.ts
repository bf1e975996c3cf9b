// Mails and webhooks use the same titles of events.
import events from '../../../../../i18n/en/notification_events.json';
import { textsOf, withEvents } from '../areas';

export default withEvents(
  textsOf(import.meta.glob<Record<string, string>>('./*.json', { eager: true, import: 'default' })),
  events
);
