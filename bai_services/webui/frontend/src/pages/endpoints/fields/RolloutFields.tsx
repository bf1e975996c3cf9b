import { Form, InputNumber, Radio, Switch } from 'antd';
import { useTranslation } from 'react-i18next';
import { MoreFields } from './MoreFields';

const STRATEGIES = ['rolling', 'blue-green', 'canary'] as const;
type Strategy = (typeof STRATEGIES)[number];

/** How a new revision replaces the current one. */
export function RolloutFields() {
  const { t } = useTranslation();
  const strategy = Form.useWatch<Strategy | undefined>(['rollout', 'strategy']) ?? 'rolling';
  const number = (name: string, placeholder: number | string, min = 0, max = 100) => (
    <Form.Item name={['rollout', name]} label={t(`endpoints.rollout-${name.replaceAll('_', '-')}`)}>
      <InputNumber min={min} max={max} precision={0} placeholder={String(placeholder)} />
    </Form.Item>
  );
  return (
    <MoreFields title={t('endpoints.rollout')}>
      <Form.Item
        name={['rollout', 'strategy']}
        label={t('endpoints.rollout-strategy')}
        extra={t(`endpoints.strategy-${strategy}-help`)}
        initialValue="rolling"
      >
        <Radio.Group
          options={STRATEGIES.map(value => ({ value, label: t(`endpoints.strategy-${value}`) }))}
        />
      </Form.Item>
      {strategy === 'rolling' && number('max_surge', 1)}
      {strategy === 'rolling' && number('max_unavailable', 0)}
      {strategy === 'canary' && number('canary_percent', 10, 1)}
      {strategy !== 'rolling' && (
        <Form.Item
          name={['rollout', 'is_automatic']}
          label={t('endpoints.rollout-is-automatic')}
          extra={t('endpoints.rollout-is-automatic-help')}
          valuePropName="checked"
          initialValue
        >
          <Switch />
        </Form.Item>
      )}
      {number('max_failures', 3, 1)}
      {number('max_error_percent', t('endpoints.unchecked'))}
      {number('max_p99_ms', t('endpoints.unchecked'), 1, 3_600_000)}
      {number('min_requests', 100, 1, 1_000_000)}
      {strategy === 'canary' && number('min_seconds', 0, 0, 7 * 86_400)}
    </MoreFields>
  );
}
