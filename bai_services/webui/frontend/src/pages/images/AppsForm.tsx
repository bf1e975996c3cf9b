import { useState } from 'react';
import { MinusCircleOutlined, PlusOutlined } from '@ant-design/icons';
import { Alert, Button, Flex, Form, Input, Popconfirm, Select, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSaveEntity, type Item } from '../../data/entities';
import { appsOf, LABEL, labelOf, PROTOCOLS, type ImageApp } from './imageApps';

/** The apps that sessions of an image offer. */
export function AppsForm({ image }: { image: Item }) {
  const { t } = useTranslation();
  const [form] = Form.useForm<{ apps: ImageApp[] }>();
  const [isChanged, setIsChanged] = useState(false);
  const save = useSaveEntity('/images');
  const labels = image['labels'] as Record<string, string>;
  const submit = ({ apps }: { apps: ImageApp[] }) => {
    // Send the resource limits, too. Otherwise the manager would reset them to those in the labels.
    const { min_slots, max_slots } = image;
    const values = { labels: { ...labels, [LABEL]: labelOf(apps) }, min_slots, max_slots };
    save.mutate({ key: String(image['id']), values }, { onSuccess: () => setIsChanged(false) });
  };
  const required = [{ required: true, message: t('entities.required') }];
  return (
    <section aria-label={t('images.apps')}>
      <Typography.Title level={5}>{t('images.apps')}</Typography.Title>
      {save.error && <Alert type="error" showIcon title={save.error.message} />}
      <Form
        form={form}
        initialValues={{ apps: appsOf(labels[LABEL] ?? '') }}
        onValuesChange={() => setIsChanged(true)}
        onFinish={submit}
      >
        <Form.List name="apps">
          {(rows, { add, remove }) => (
            <>
              {rows.map(({ key, name }) => (
                <Flex key={key} gap="small" align="start" wrap>
                  <Form.Item name={[name, 'name']} rules={required}>
                    <Input
                      placeholder={t('images.app-name')}
                      aria-label={t('images.app-name')}
                      style={{ width: 160 }}
                    />
                  </Form.Item>
                  <Form.Item name={[name, 'protocol']} rules={required} initialValue="http">
                    <Select
                      aria-label={t('images.app-protocol')}
                      options={PROTOCOLS.map(value => ({ value, label: value }))}
                      style={{ width: 110 }}
                    />
                  </Form.Item>
                  <Form.Item name={[name, 'ports']} rules={required}>
                    <Input
                      placeholder={t('images.app-ports')}
                      aria-label={t('images.app-ports')}
                      style={{ width: 120 }}
                    />
                  </Form.Item>
                  <Button
                    icon={<MinusCircleOutlined />}
                    aria-label={t('images.remove-app')}
                    onClick={() => remove(name)}
                  />
                </Flex>
              ))}
              <Flex gap="small">
                <Button icon={<PlusOutlined />} onClick={() => add()}>
                  {t('images.add-app')}
                </Button>
                <Popconfirm
                  title={t('images.save-apps-title')}
                  description={t('images.save-apps-effect')}
                  okText={t('images.save-apps')}
                  cancelText={t('entities.cancel')}
                  onConfirm={form.submit}
                >
                  <Button type="primary" disabled={!isChanged} loading={save.isPending}>
                    {t('images.save-apps')}
                  </Button>
                </Popconfirm>
              </Flex>
            </>
          )}
        </Form.List>
      </Form>
    </section>
  );
}
