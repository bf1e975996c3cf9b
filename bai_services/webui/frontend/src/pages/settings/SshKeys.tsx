import { Alert, App, Button, Card, Empty, Flex, Form, Input, Popconfirm, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatTime } from '../../components/time';
import {
  sshKeysQuery,
  useAddSshKey,
  useRemoveSshKey,
  type SshKey
} from '../../data/accounts/account';

interface NewKey {
  name: string;
  publicKey: string;
}

/** SSH keys that the user's sessions accept. */
export function SshKeys() {
  const { t } = useTranslation();
  const keys = useQuery(sshKeysQuery);
  return (
    <div style={{ maxWidth: 760 }}>
      {keys.error && <ErrorNotice error={keys.error} onRetry={() => void keys.refetch()} />}
      {keys.data?.items.length === 0 && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('settings.no-ssh-keys')} />
      )}
      {keys.data?.items.map(key => (
        <KeyCard key={key.name} sshKey={key} />
      ))}
      <AddKey />
    </div>
  );
}

function KeyCard({ sshKey }: { sshKey: SshKey }) {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const remove = useRemoveSshKey();
  const { name, public_key: text, fingerprint, created_at: created } = sshKey;
  return (
    <Card
      size="small"
      title={name}
      style={{ marginBottom: 8 }}
      extra={
        <Popconfirm
          title={t('settings.remove-key', { name })}
          onConfirm={() =>
            remove.mutate(name, { onError: error => void message.error(error.message) })
          }
        >
          <Button size="small" danger aria-label={t('settings.remove-key', { name })}>
            {t('settings.remove')}
          </Button>
        </Popconfirm>
      }
    >
      <Typography.Paragraph copyable={{ text }} style={{ overflowWrap: 'anywhere', margin: 0 }}>
        {fingerprint}
      </Typography.Paragraph>
      <Typography.Text type="secondary">{formatTime(created, i18n.language)}</Typography.Text>
    </Card>
  );
}

function AddKey() {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const [form] = Form.useForm<NewKey>();
  const add = useAddSshKey();
  const submit = async () => {
    const { name, publicKey } = await form.validateFields();
    add.mutate(
      { name, publicKey },
      {
        onSuccess: ({ private_key: secret }) => {
          form.resetFields();
          if (secret) {
            void modal.success({ width: 640, title: name, content: <PrivateKey text={secret} /> });
          }
        }
      }
    );
  };
  return (
    <Card size="small" title={t('settings.add-key')}>
      <Form
        form={form}
        layout="vertical"
        onFinish={() => void submit()}
        initialValues={{ name: '', publicKey: '' }}
      >
        <Form.Item
          name="name"
          label={t('settings.key-name')}
          rules={[{ required: true, message: t('settings.key-name-missing') }]}
        >
          <Input maxLength={64} />
        </Form.Item>
        <Form.Item
          name="publicKey"
          label={t('settings.public-key')}
          extra={t('settings.public-key-help')}
        >
          <Input.TextArea autoSize={{ minRows: 2, maxRows: 6 }} placeholder="ssh-ed25519 …" />
        </Form.Item>
        {add.error && <ErrorNotice error={add.error} />}
        <Flex style={{ marginTop: 8 }}>
          <Button type="primary" htmlType="submit" loading={add.isPending}>
            {t('settings.add-key')}
          </Button>
        </Flex>
      </Form>
    </Card>
  );
}

/** Shows a private key that the server has generated and does not store. */
function PrivateKey({ text }: { text: string }) {
  const { t } = useTranslation();
  return (
    <>
      <Alert type="warning" showIcon title={t('settings.private-key-once')} />
      <Typography.Paragraph copyable={{ text }} style={{ marginTop: 12 }}>
        <pre style={{ overflow: 'auto', maxHeight: 240 }}>{text}</pre>
      </Typography.Paragraph>
    </>
  );
}
