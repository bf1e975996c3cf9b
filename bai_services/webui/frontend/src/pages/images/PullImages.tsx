import { useState } from 'react';
import { App, Button, Form, Modal, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { groupNamesQuery, imageNamesQuery, useCreatePulls } from '../../data/cluster/imagePulls';

interface Values {
  images: string[];
  resource_group: string;
}

/** Button that opens a dialog to pull images to the agents of a resource group. */
export function PullImages({ onPulled }: { onPulled: () => void }) {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setIsOpen(true)}>{t('images.pull')}</Button>
      {isOpen && <PullDialog onClose={() => setIsOpen(false)} onPulled={onPulled} />}
    </>
  );
}

function PullDialog({ onClose, onPulled }: { onClose: () => void; onPulled: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [form] = Form.useForm<Values>();
  const images = useQuery(imageNamesQuery);
  const groups = useQuery(groupNamesQuery);
  const create = useCreatePulls();
  const error = images.error ?? groups.error ?? create.error;
  return (
    <Modal
      open
      title={t('images.pull')}
      okText={t('images.pull')}
      confirmLoading={create.isPending}
      onCancel={onClose}
      onOk={form.submit}
    >
      <Form
        form={form}
        layout="vertical"
        onFinish={(values: Values) =>
          create.mutate(values, {
            onSuccess: ({ count }) => {
              void message.success(t('images.pulls-created', { count }));
              onClose();
              onPulled();
            }
          })
        }
      >
        <Form.Item
          name="images"
          label={t('images.title')}
          rules={[{ required: true, message: t('images.choose-images') }]}
        >
          <Select
            mode="multiple"
            loading={images.isPending}
            options={(images.data ?? []).map(image => ({
              value: image.id,
              label: `${image.name} (${image.architecture})`
            }))}
            showSearch={{ optionFilterProp: 'label' }}
          />
        </Form.Item>
        <Form.Item
          name="resource_group"
          label={t('image-pulls.resource-group')}
          extra={t('images.pull-help')}
          rules={[{ required: true, message: t('images.choose-group') }]}
        >
          <Select
            loading={groups.isPending}
            options={(groups.data ?? []).map(({ name }) => ({ value: name, label: name }))}
          />
        </Form.Item>
        {error && <ErrorNotice error={error} />}
      </Form>
    </Modal>
  );
}
