import { App, Form, Input, Modal, Select, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useCommit, type NewCommit } from '../../../data/cluster/customImages';
import type { Session } from '../../../data/sessions/sessions';

const VISIBILITIES = ['private', 'project'] as const;
const NAME = /^[A-Za-z0-9_-]{4,32}$/;

/** Commit a running session to a custom image. */
export function CommitDialog({ session, onClose }: { session: Session; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<NewCommit>();
  const commit = useCommit(session.id);
  const submit = (values: NewCommit) =>
    commit.mutate(values, {
      onSuccess: () => {
        void message.success(t('custom-images.begun', { name: values.name }));
        onClose();
      }
    });
  return (
    <Modal
      open
      title={t('custom-images.commit-title', { name: session.name })}
      onCancel={onClose}
      onOk={form.submit}
      confirmLoading={commit.isPending}
      okText={t('custom-images.commit')}
    >
      <Typography.Paragraph type="secondary">
        {t('custom-images.commit-help', { image: session.image })}
      </Typography.Paragraph>
      <Form
        form={form}
        layout="vertical"
        onFinish={submit}
        initialValues={{ visibility: 'private', description: '' }}
      >
        <Form.Item
          name="name"
          label={t('custom-images.name')}
          extra={t('custom-images.name-help')}
          rules={[{ required: true, pattern: NAME, message: t('custom-images.name-help') }]}
        >
          <Input autoFocus autoComplete="off" maxLength={32} />
        </Form.Item>
        <Form.Item name="description" label={t('custom-images.description')}>
          <Input autoComplete="off" maxLength={512} />
        </Form.Item>
        <Form.Item name="visibility" label={t('custom-images.visibility')}>
          <Select
            options={VISIBILITIES.map(value => ({
              value,
              label: t(`custom-images.visibility-${value}`)
            }))}
          />
        </Form.Item>
      </Form>
      {commit.error && (
        <Typography.Text type="danger" role="alert">
          {commit.error.message}
        </Typography.Text>
      )}
    </Modal>
  );
}
