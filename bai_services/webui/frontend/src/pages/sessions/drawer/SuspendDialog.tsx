import { Alert, Checkbox, Form, InputNumber, Modal, Radio } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSuspendSession, type Session } from '../../../data/sessions/sessions';

const DEFAULT_SECONDS = 60;
const MAX_SECONDS = 600;

interface Values {
  mode: 'wait' | 'requeue';
  seconds: number;
  keepVariables: boolean;
}

interface SuspendDialogProps {
  session: Session;
  onClose: () => void;
}

/** Dialog that suspends a session: when it resumes, and what it saves first. */
export function SuspendDialog({ session, onClose }: SuspendDialogProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<Values>();
  const suspend = useSuspendSession(session.id);
  const submit = ({ mode, seconds, keepVariables }: Values) =>
    suspend.mutate(
      { seconds, requeue: mode === 'requeue', keep_variables: keepVariables },
      { onSuccess: onClose }
    );
  return (
    <Modal
      open
      title={t('sessions.suspend-one', { name: session.name })}
      onCancel={onClose}
      onOk={form.submit}
      confirmLoading={suspend.isPending}
      okText={t('sessions.suspend')}
    >
      <p>{t('sessions.suspend-help')}</p>
      <Form
        form={form}
        layout="vertical"
        initialValues={{ mode: 'wait', seconds: DEFAULT_SECONDS, keepVariables: true }}
        onFinish={submit}
      >
        <Form.Item name="mode" label={t('sessions.suspend-return')}>
          <Radio.Group
            options={[
              { value: 'wait', label: t('sessions.suspend-wait') },
              { value: 'requeue', label: t('sessions.suspend-requeue') }
            ]}
          />
        </Form.Item>
        <Form.Item
          name="seconds"
          label={t('sessions.suspend-seconds')}
          extra={t('sessions.suspend-seconds-help')}
        >
          <InputNumber min={0} max={MAX_SECONDS} precision={0} />
        </Form.Item>
        <Form.Item name="keepVariables" valuePropName="checked">
          <Checkbox>{t('sessions.suspend-variables')}</Checkbox>
        </Form.Item>
      </Form>
      {suspend.error && <Alert type="error" title={suspend.error.message} />}
    </Modal>
  );
}
