import { Alert, Form, Input, Modal, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useChangeSession, type Session } from '../../../data/sessions/sessions';

/** Whether an amount of a slot can change while a session runs. */
const isResizable = (slot: string) => slot === 'cpu' || slot === 'mem' || slot.endsWith('.shares');

/** Change the cpu, memory and device shares of a running session. */
export function ResizeDialog({ session, onClose }: { session: Session; onClose: () => void }) {
  const { t } = useTranslation();
  const [form] = Form.useForm<Record<string, string>>();
  const change = useChangeSession(session.id);
  const sizes = Object.entries(session.requested).filter(([slot]) => isResizable(slot));
  const submit = (amounts: Record<string, string>) => {
    const changed = sizes
      .map(([slot, amount]) => [slot, (amounts[slot] ?? '').trim(), amount] as const)
      .filter(([, text, amount]) => text !== '' && text !== amount)
      .map(([slot, text]) => [slot, text] as const);
    if (changed.length === 0) {
      onClose();
      return;
    }
    change.mutate({ kind: 'size', resources: Object.fromEntries(changed) }, { onSuccess: onClose });
  };
  return (
    <Modal
      open
      title={t('sessions.resize-title', { name: session.name })}
      onCancel={onClose}
      onOk={form.submit}
      confirmLoading={change.isPending}
      okText={t('sessions.resize')}
    >
      <Typography.Paragraph type="secondary">{t('sessions.resize-help')}</Typography.Paragraph>
      {session.elasticity && (
        <Alert
          type="info"
          showIcon
          title={t('sessions.resize-elastic')}
          style={{ marginBottom: 12 }}
        />
      )}
      <Form
        form={form}
        layout="vertical"
        onFinish={submit}
        initialValues={Object.fromEntries(sizes)}
      >
        {sizes.map(([slot], index) => (
          <Form.Item key={slot} name={slot} label={t(`launcher.slot-${slot}`, slot)}>
            <Input autoFocus={index === 0} autoComplete="off" />
          </Form.Item>
        ))}
      </Form>
      {change.error && (
        <Typography.Text type="danger" role="alert">
          {change.error.message}
        </Typography.Text>
      )}
    </Modal>
  );
}
