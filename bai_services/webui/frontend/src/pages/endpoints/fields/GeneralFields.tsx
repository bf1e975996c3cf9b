import { Form, Input, InputNumber, Select, Switch } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../../../data/accounts/me';

// MAX_REPLICAS in core/serving/settings.py.
const MAX_REPLICAS = 100;
// MAX_TAGS in core/tags.py.
const MAX_TAGS = 16;

/** Name, project, number of replicas, tags, and whether the endpoint is public. */
export function GeneralFields() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  return (
    <>
      <Form.Item
        name="name"
        label={t('endpoints.name')}
        extra={t('endpoints.name-help')}
        rules={[{ required: true, message: t('entities.required') }]}
      >
        <Input autoComplete="off" spellCheck={false} />
      </Form.Item>
      {(me?.projects.length ?? 0) > 1 && (
        <Form.Item name="project" label={t('endpoints.project')}>
          <Select
            allowClear
            showSearch={{ optionFilterProp: 'label' }}
            options={(me?.projects ?? []).map(({ id, name }) => ({ value: id, label: name }))}
          />
        </Form.Item>
      )}
      <Form.Item name="replicas" label={t('endpoints.replicas')}>
        <InputNumber min={0} max={MAX_REPLICAS} precision={0} />
      </Form.Item>
      <Form.Item name="tags" label={t('endpoints.tags')} extra={t('endpoints.tags-help')}>
        <Select
          mode="tags"
          open={false}
          suffix={null}
          tokenSeparators={[',']}
          maxCount={MAX_TAGS}
        />
      </Form.Item>
      <Form.Item
        name="is_public"
        label={t('endpoints.is-public')}
        extra={t('endpoints.is-public-help')}
        valuePropName="checked"
      >
        <Switch />
      </Form.Item>
    </>
  );
}
