// The Hub's pages, mails, webhooks and JupyterLab use the same texts.
import deviceNotices from '../../../../../i18n/th/device_notices.json';
import events from '../../../../../i18n/th/notification_events.json';
import { textsOf, withEvents } from '../areas';

export default {
  ...withEvents(
    textsOf(
      import.meta.glob<Record<string, string>>('./*.json', { eager: true, import: 'default' })
    ),
    events
  ),
  deviceNotices
};
