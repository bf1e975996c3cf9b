import { Form, Input, InputNumber, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { DEFAULT_PATH, given, MAX_SYSTEM_PROMPT, type Card, type Parameters } from './cards';

const MAX_PATH = 200;
const PATH = /^[\w./~-]*$/;

/** Limits of the parameters in api/serving/chat_bodies.py. */
const PARAMETERS: Record<keyof Parameters, { min: number; max: number; step: number }> = {
  max_tokens: { min: 1, max: 1_000_000, step: 1 },
  temperature: { min: 0, max: 2, step: 0.1 },
  top_p: { min: 0, max: 1, step: 0.05 },
  top_k: { min: 1, max: 1_000_000, step: 1 },
  frequency_penalty: { min: -2, max: 2, step: 0.1 },
  presence_penalty: { min: -2, max: 2, step: 0.1 }
};
const NAMES = Object.keys(PARAMETERS) as (keyof Parameters)[];

interface CardSettingsProps {
  card: Card;
  onChange: (changes: Partial<Card>) => void;
  onClose: () => void;
}

interface Values {
  system: string;
  basePath: string;
  parameters: Parameters;
}

/** Dialog with the system prompt and the parameters of a card. */
export function CardSettings({ card, onChange, onClose }: CardSettingsProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<Values>();
  const { system, basePath, parameters } = card;
  const save = (values: Values) => {
    onChange({
      system: values.system,
      basePath: values.basePath.trim() || DEFAULT_PATH,
      parameters: given(values.parameters)
    });
    onClose();
  };
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('chat.settings')}
      okText={t('entities.save')}
      cancelText={t('entities.cancel')}
      onOk={form.submit}
    >
      <Form<Values>
        form={form}
        layout="vertical"
        initialValues={{ system, basePath, parameters }}
        onFinish={save}
      >
        <Form.Item name="system" label={t('chat.system')} extra={t('chat.system-help')}>
          <Input.TextArea autoSize={{ minRows: 3, maxRows: 10 }} maxLength={MAX_SYSTEM_PROMPT} />
        </Form.Item>
        <p className="bai-secondary">{t('chat.parameters-help')}</p>
        <div className="bai-chat-parameters">
          {NAMES.map(name => (
            <Form.Item
              key={name}
              name={['parameters', name]}
              label={t(`chat.${name.replaceAll('_', '-')}`)}
            >
              <InputNumber {...PARAMETERS[name]} style={{ width: '100%' }} />
            </Form.Item>
          ))}
        </div>
        <Form.Item
          name="basePath"
          label={t('chat.base-path')}
          extra={t('chat.base-path-help')}
          rules={[{ pattern: PATH, message: t('chat.base-path-invalid') }]}
        >
          <Input maxLength={MAX_PATH} />
        </Form.Item>
      </Form>
    </Modal>
  );
}
