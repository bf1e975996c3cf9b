import { App, Form, Input, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { useChangeFullName } from '../../data/accounts/me';

const MAX_CHARACTERS = 64;

interface FullNameDialogProps {
  userId: string;
  initial: string;
  onClose: () => void;
}

/** Dialog for the user's own full name; an API error is shown at the field. */
export function FullNameDialog({ userId, initial, onClose }: FullNameDialogProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<{ name: string }>();
  const change = useChangeFullName(userId);
  const save = ({ name }: { name: string }) =>
    change.mutate(name, {
      onSuccess: () => {
        void message.success(t('settings.name-saved'));
        onClose();
      }
    });
  return (
    <Modal
      open
      title={t('settings.edit-name')}
      okText={t('entities.save')}
      onOk={form.submit}
      onCancel={onClose}
      confirmLoading={change.isPending}
    >
      <Form form={form} layout="vertical" initialValues={{ name: initial }} onFinish={save}>
        <Form.Item
          name="name"
          label={t('settings.full-name')}
          {...(change.error
            ? { validateStatus: 'error' as const, help: change.error.message }
            : {})}
        >
          <Input autoFocus autoComplete="name" showCount maxLength={MAX_CHARACTERS} />
        </Form.Item>
      </Form>
    </Modal>
  );
}
