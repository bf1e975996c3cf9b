import { Form, InputNumber, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { useChangeEndpoint, type Endpoint } from '../../../data/serving/endpoints';

// MAX_REPLICAS in core/serving/settings.py.
const MAX_REPLICAS = 100;

interface ScaleEndpointProps {
  endpoint: Endpoint;
  onClose: () => void;
}

/** Dialog to set the number of replicas. */
export function ScaleEndpoint({ endpoint, onClose }: ScaleEndpointProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<{ replicas: number }>();
  const change = useChangeEndpoint(endpoint.id);
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('endpoints.scale-title', { name: endpoint.name })}
      okText={t('endpoints.scale')}
      cancelText={t('entities.cancel')}
      onOk={form.submit}
      confirmLoading={change.isPending}
    >
      <Form
        form={form}
        layout="vertical"
        initialValues={{ replicas: endpoint.replicas }}
        onFinish={({ replicas }) => change.mutate({ replicas }, { onSuccess: onClose })}
      >
        <Form.Item
          name="replicas"
          label={t('endpoints.replicas')}
          extra={t('endpoints.scale-help')}
          rules={[{ required: true, message: t('entities.required') }]}
          {...(change.error
            ? { validateStatus: 'error' as const, help: change.error.message }
            : {})}
        >
          <InputNumber autoFocus min={0} max={MAX_REPLICAS} precision={0} />
        </Form.Item>
      </Form>
    </Modal>
  );
}
