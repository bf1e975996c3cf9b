import { Alert, App, Button, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Item } from '../../data/entities';
import { useRenewWebhookSecret, useTestWebhook } from '../../data/notifications';

/** Buttons of a webhook: send a test message, replace the secret. */
export function WebhookActions({ webhook }: { webhook: Item }) {
  const { t } = useTranslation();
  const { message, modal } = App.useApp();
  const test = useTestWebhook();
  const renew = useRenewWebhookSecret();
  const key = String(webhook['id']);
  const onError = (error: Error) => void message.error(error.message);
  const sendTest = () =>
    test.mutate(key, {
      onError,
      onSuccess: ({ is_delivered: isDelivered, error }) =>
        isDelivered
          ? void message.success(t('webhooks.tested'))
          : void message.error(t('webhooks.test-failed', { error }))
    });
  const replace = () =>
    renew.mutate(key, {
      onError,
      onSuccess: ({ secret }) =>
        void modal.success({
          title: t('webhooks.secret-replaced'),
          content: <WebhookSecret secret={secret} />
        })
    });
  return (
    <>
      <Button loading={test.isPending} onClick={sendTest}>
        {t('webhooks.test')}
      </Button>
      <Button
        loading={renew.isPending}
        onClick={() =>
          void modal.confirm({
            title: t('webhooks.replace-secret'),
            content: t('webhooks.replace-warning'),
            okText: t('webhooks.replace-secret'),
            onOk: replace
          })
        }
      >
        {t('webhooks.replace-secret')}
      </Button>
    </>
  );
}

/** The secret for verifying signatures; the server returns it only once. */
export function WebhookSecret({ secret }: { secret: string }) {
  const { t } = useTranslation();
  return (
    <>
      <Alert type="warning" showIcon title={t('webhooks.secret-once')} />
      <Typography.Paragraph copyable style={{ marginTop: 12, overflowWrap: 'anywhere' }}>
        {secret}
      </Typography.Paragraph>
    </>
  );
}
