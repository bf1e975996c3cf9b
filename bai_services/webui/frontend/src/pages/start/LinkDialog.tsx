import { Form, Input, Modal } from 'antd';
import { useNavigate, useRouter } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';
import { requestInLink } from './requestInLink';

/** Opens the launcher with the request in a link, such as one that a colleague has sent. */
export function LinkDialog({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const { parseSearch } = useRouter().options;
  const [form] = Form.useForm<{ link: string }>();
  const submit = ({ link }: { link: string }) => {
    const { origin } = window.location;
    const search = requestInLink(link, origin, config.base, text => parseSearch(text));
    if (search) {
      void navigate({ to: '/launch', search });
    } else {
      form.setFields([{ name: 'link', errors: [t('start.link-invalid')] }]);
    }
  };
  return (
    <Modal
      open={isOpen}
      onCancel={onClose}
      title={t('start.link')}
      okText={t('start.link-open')}
      onOk={form.submit}
      destroyOnHidden
    >
      <Form form={form} layout="vertical" onFinish={submit} preserve={false}>
        <Form.Item
          name="link"
          label={t('start.link-label')}
          rules={[{ required: true, message: t('start.link-invalid') }]}
        >
          <Input.TextArea autoFocus autoSize={{ minRows: 2, maxRows: 6 }} />
        </Form.Item>
      </Form>
    </Modal>
  );
}
