import { App, Form, Input, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { useCreateFolder } from '../../data/folders';

/** A dialog that creates a personal folder; an error is shown at its field. */
export function CreateFolder({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<{ name: string }>();
  const create = useCreateFolder();
  const close = () => {
    create.reset();
    onClose();
  };
  const submit = (values: { name: string }) =>
    create.mutate(values, {
      onSuccess: folder => {
        void message.success(t('data.created', { name: folder.name }));
        close();
      }
    });
  return (
    <Modal
      open={isOpen}
      onCancel={close}
      title={t('data.create')}
      okText={t('data.create')}
      onOk={form.submit}
      confirmLoading={create.isPending}
      destroyOnHidden
    >
      <Form form={form} layout="vertical" onFinish={submit} preserve={false}>
        <Form.Item
          name="name"
          label={t('data.name')}
          rules={[{ required: true, message: t('data.name-needed') }]}
          {...(create.error
            ? { validateStatus: 'error' as const, help: create.error.message }
            : {})}
        >
          <Input autoFocus autoComplete="off" />
        </Form.Item>
      </Form>
    </Modal>
  );
}
