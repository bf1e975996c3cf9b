import { Button, Drawer, Flex, Form, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import type { Item } from '../../data/entities';
import { meQuery } from '../../data/accounts/me';
import { fieldsFor, labelKey, type Entity } from './entity';
import { FieldControl } from './FieldControl';
import { newValues } from './values';

interface SharedFormProps {
  entity: Entity;
  /** Number of the selected objects. */
  count: number;
  onClose: () => void;
  /** Called with the fields that were filled in. */
  onSave: (values: Item) => void;
}

/** Form that sets fields of several objects to the same values; fields left empty do not change. */
export function SharedForm({ entity, count, onClose, onSave }: SharedFormProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<Item>();
  const { data: me } = useQuery(meQuery);
  const fields = fieldsFor(entity, me?.role, 'change').filter(field => field.isBulkEditable);
  return (
    <Drawer
      open
      onClose={onClose}
      size={520}
      title={t('entities.edit-several', { count })}
      footer={
        <Flex gap="small" justify="end">
          <Button onClick={onClose}>{t('entities.cancel')}</Button>
          <Button type="primary" onClick={form.submit}>
            {t('entities.save')}
          </Button>
        </Flex>
      }
    >
      <Typography.Paragraph>{t('entities.empty-unchanged')}</Typography.Paragraph>
      <Form
        form={form}
        layout="vertical"
        onFinish={(shown: Item) => {
          const values = newValues(fields, shown);
          if (Object.keys(values).length > 0) {
            onSave(values);
          } else {
            onClose();
          }
        }}
      >
        {fields.map(field => (
          <Form.Item key={field.key} name={field.key} label={t(labelKey(entity, field.key))}>
            <FieldControl entity={entity} field={{ ...field, isRequired: false }} />
          </Form.Item>
        ))}
      </Form>
    </Drawer>
  );
}
