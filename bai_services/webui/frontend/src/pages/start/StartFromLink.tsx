import { useState } from 'react';
import { Button, Form, Input, Modal } from 'antd';
import { useNavigate, useRouter } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';
import { requestInLink } from './requestInLink';

/** Opens the launcher with the request in a link, such as one that a colleague has sent. */
export function StartFromLink() {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const { parseSearch } = useRouter().options;
  const [isOpen, setIsOpen] = useState(false);
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
    <>
      <p>{t('start.link-help')}</p>
      <Button onClick={() => setIsOpen(true)}>{t('start.link')}</Button>
      <Modal
        open={isOpen}
        onCancel={() => setIsOpen(false)}
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
    </>
  );
}
