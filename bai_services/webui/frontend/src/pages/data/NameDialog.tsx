import { useRef } from 'react';
import { Form, Input, Modal, type InputRef } from 'antd';
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
  const input = useRef<InputRef>(null);
  return (
    <Modal
      open
      title={props.title}
      okText={t('data.save')}
      onOk={form.submit}
      onCancel={props.onClose}
      confirmLoading={props.isSaving}
      // If a key opens the dialog, AntD focuses its close button.
      afterOpenChange={isOpen => isOpen && input.current?.focus()}
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
          <Input ref={input} autoFocus autoComplete="off" />
        </Form.Item>
      </Form>
    </Modal>
  );
}
