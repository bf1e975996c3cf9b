// The Hub's pages, mails and webhooks use the same texts of reasons and events.
import reasons from '../../../../../i18n/th/reasons.json';
import events from '../../../../../i18n/th/notification_events.json';
import { textsOf, withEvents } from '../areas';

export default {
  ...withEvents(
    textsOf(
      import.meta.glob<Record<string, string>>('./*.json', { eager: true, import: 'default' })
    ),
    events
  ),
  reasons
};
