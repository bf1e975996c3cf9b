import { Form, Input, Modal } from 'antd';
import { useTranslation } from 'react-i18next';

interface NameDialogProps {
  title: string;
  label: string;
  initial: string;
  error: Error | null;
  isSaving: boolean;
  onSave: (name: string) => void;
  onClose: () => void;
}

/** Dialog for a name or a path; an API error is shown at the field. */
export function NameDialog(props: NameDialogProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<{ name: string }>();
  return (
    <Modal
      open
      title={props.title}
      okText={t('data.save')}
      onOk={form.submit}
      onCancel={props.onClose}
      confirmLoading={props.isSaving}
    >
      <Form
        form={form}
        layout="vertical"
        initialValues={{ name: props.initial }}
        onFinish={({ name }) => props.onSave(name)}
      >
        <Form.Item
          name="name"
          label={props.label}
          rules={[{ required: true, message: t('data.name-needed') }]}
          {...(props.error ? { validateStatus: 'error' as const, help: props.error.message } : {})}
        >
          <Input autoFocus autoComplete="off" />
        </Form.Item>
      </Form>
    </Modal>
  );
}
