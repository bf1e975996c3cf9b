import { App } from 'antd';
import { useTranslation } from 'react-i18next';
import { EntityPage } from '../../components/entities/EntityPage';
import { Deliveries } from './Deliveries';
import { WebhookActions, WebhookSecret } from './WebhookActions';
import { WEBHOOKS } from './webhooks';

/** Webhooks of administrators, with their deliveries. */
export function WebhooksPage() {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  return (
    <EntityPage
      path="/webhooks"
      title="pages.webhooks"
      entities={[WEBHOOKS]}
      details={(_, item) => <Deliveries key={String(item['id'])} webhook={item} />}
      actions={(_, item) => <WebhookActions webhook={item} />}
      onCreated={(_, item) =>
        void modal.success({
          title: t('webhooks.created'),
          content: <WebhookSecret secret={String(item['secret'])} />
        })
      }
    />
  );
}
