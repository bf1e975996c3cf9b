import { Form, Input, InputNumber } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { variantsQuery } from '../../../data/serving/endpoints';
import { MoreFields } from './MoreFields';

// The defaults of HealthCheck in api/serving/bodies.py.
const MORE = {
  interval_seconds: 10,
  timeout_seconds: 15,
  max_failures: 10,
  expected_status: 200
};

/** When a replica gets requests, and when it is replaced. */
export function HealthFields() {
  const { t } = useTranslation();
  const chosen = Form.useWatch<string | undefined>('variant');
  const { data: variants } = useQuery(variantsQuery);
  const variant = variants?.find(({ name }) => name === chosen);
  return (
    <>
      <Form.Item
        name={['health', 'path']}
        label={t('endpoints.health-path')}
        extra={t('endpoints.health-path-help')}
      >
        <Input autoComplete="off" spellCheck={false} placeholder={variant?.health_path ?? ''} />
      </Form.Item>
      <Form.Item name={['health', 'start_seconds']} label={t('endpoints.health-start-seconds')}>
        <InputNumber
          min={1}
          placeholder={variant === undefined ? '' : String(variant.start_seconds)}
        />
      </Form.Item>
      <MoreFields title={t('endpoints.health-more')}>
        {Object.entries(MORE).map(([name, value]) => (
          <Form.Item
            key={name}
            name={['health', name]}
            label={t(`endpoints.health-${name.replaceAll('_', '-')}`)}
          >
            <InputNumber min={0} placeholder={String(value)} />
          </Form.Item>
        ))}
      </MoreFields>
    </>
  );
}
