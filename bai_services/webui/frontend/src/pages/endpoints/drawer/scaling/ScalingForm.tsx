import { Alert, AutoComplete, Form, Input, InputNumber, Modal, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import {
  revisionsQuery,
  useChangeEndpoint,
  variantsQuery,
  type Endpoint
} from '../../../../data/serving/endpoints';
import { PeriodFields } from './PeriodFields';
import {
  isMetric,
  MEASURES,
  minimumOf,
  ruleOfValues,
  targetOf,
  utilizationOf,
  valuesOfRule,
  type Measure,
  type RuleValues
} from './rule';

// MAX_REPLICAS in core/serving/settings.py.
const MAX_REPLICAS = 100;
const MAX_IDLE_MINUTES = 60;

interface ScalingFormProps {
  endpoint: Endpoint;
  onClose: () => void;
}

/** The form of the scaling rule of an endpoint. */
export function ScalingForm({ endpoint, onClose }: ScalingFormProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<RuleValues>();
  const change = useChangeEndpoint(endpoint.id);
  // The watched value is undefined in the first rendering.
  const measure = (Form.useWatch('measure', form) as Measure | undefined) ?? 'requests';
  const least = Form.useWatch('min_replicas', form) as number | null | undefined;
  const required = [{ required: true, message: t('entities.required') }];
  const label = (key: string) => t(`endpoint-scaling.${key}`);
  const setMeasure = (chosen: Measure) => {
    // Reset the target to the default: with another measure, it has another unit.
    form.setFieldValue('target', targetOf(chosen));
    form.setFieldValue('utilization_percent', utilizationOf(chosen));
    form.setFieldValue(
      'min_replicas',
      Math.max(minimumOf(chosen), form.getFieldValue('min_replicas') as number)
    );
  };
  const save = (values: RuleValues) => {
    // Include the values of hidden fields.
    const all = { ...form.getFieldsValue(true), ...values } as RuleValues;
    change.mutate({ scaling: ruleOfValues(all) }, { onSuccess: onClose });
  };
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('endpoint-scaling.form-title', { name: endpoint.name })}
      okText={t('entities.save')}
      cancelText={t('entities.cancel')}
      onOk={form.submit}
      confirmLoading={change.isPending}
    >
      {change.error && (
        <Alert type="error" showIcon title={change.error.message} style={{ marginBottom: 12 }} />
      )}
      <Form
        form={form}
        layout="vertical"
        initialValues={valuesOfRule(endpoint.scaling, endpoint.replicas)}
        onFinish={save}
      >
        <Form.Item
          name="measure"
          label={label('measure')}
          extra={t(`endpoint-scaling.measure-${measure}-help`)}
        >
          <Select<Measure>
            autoFocus
            onChange={setMeasure}
            options={MEASURES.map(value => ({ value, label: label(`measure-${value}`) }))}
          />
        </Form.Item>
        {isMetric(measure) && <MetricField endpoint={endpoint} />}
        {measure === 'query' && (
          <Form.Item name="query" label={label('query')} rules={required}>
            <Input.TextArea autoSize maxLength={500} spellCheck={false} />
          </Form.Item>
        )}
        <Form.Item name="target" label={label(`target-${measure}`)} rules={required}>
          <InputNumber min={0.01} max={1_000_000} />
        </Form.Item>
        {measure === 'requests' && (
          <Form.Item
            name="utilization_percent"
            label={label('utilization')}
            extra={label('utilization-help')}
            rules={required}
          >
            <InputNumber min={5} max={100} precision={0} suffix="%" />
          </Form.Item>
        )}
        <Form.Item name="min_replicas" label={label('min')} rules={required}>
          <InputNumber min={minimumOf(measure)} max={MAX_REPLICAS} precision={0} />
        </Form.Item>
        <Form.Item name="max_replicas" label={label('max')} rules={required}>
          <InputNumber min={Math.max(1, least ?? 1)} max={MAX_REPLICAS} precision={0} />
        </Form.Item>
        {least === 0 && (
          <Form.Item name="idle_minutes" label={label('idle-minutes')} rules={required}>
            <InputNumber min={1} max={MAX_IDLE_MINUTES} />
          </Form.Item>
        )}
        <PeriodFields least={minimumOf(measure)} most={MAX_REPLICAS} />
      </Form>
    </Modal>
  );
}

/** The name of a metric, with suggestions for the runtime variant. */
function MetricField({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useTranslation();
  const { data: revisions } = useQuery(revisionsQuery(endpoint.id));
  const { data: variants } = useQuery(variantsQuery);
  const serving = endpoint.active_revision ?? endpoint.target_revision;
  const settings = revisions?.find(({ number }) => number === serving)?.settings;
  const variant = variants?.find(({ name }) => name === settings?.['variant']);
  return (
    <Form.Item
      name="metric"
      label={t('endpoint-scaling.metric')}
      extra={t(`endpoint-scaling.metric-${variant?.metrics_path === '' ? 'unread' : 'help'}`)}
      rules={[{ required: true, message: t('entities.required') }]}
    >
      <AutoComplete
        maxLength={200}
        options={Object.entries(variant?.metrics ?? {}).map(([value, name]) => ({
          value,
          label: `${value} (${name})`
        }))}
      />
    </Form.Item>
  );
}
