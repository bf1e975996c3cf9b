import { Form, Input, InputNumber, Radio, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../../components/amount';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { presetsQuery } from '../../../data/serving/models';
import { MAX_KERNELS, optionsQuery } from '../../../data/sessions/launch';

/** Resource group and resources of one replica. */
export function ResourceFields() {
  const { t } = useTranslation();
  const project = Form.useWatch<string | undefined>('project');
  const group = Form.useWatch<string | undefined>('resource_group');
  const { data: options, error, refetch } = useQuery(optionsQuery(project ?? '', group ?? ''));
  const preset = Form.useWatch<string | undefined>('preset');
  const { data: presets } = useQuery(presetsQuery(project ?? ''));
  return (
    <>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {(options?.resource_groups.length ?? 0) > 1 && (
        <Form.Item name="resource_group" label={t('endpoints.resource-group')}>
          <Select
            allowClear
            options={(options?.resource_groups ?? []).map(({ name }) => ({
              value: name,
              label: name
            }))}
          />
        </Form.Item>
      )}
      {(presets?.length ?? 0) > 0 && (
        <Form.Item name="preset" label={t('endpoints.preset')} extra={t('endpoints.preset-help')}>
          <Select
            allowClear
            showSearch={{ optionFilterProp: 'label' }}
            placeholder={t('launcher.preset-none')}
            options={(presets ?? []).map(({ name }) => ({ value: name, label: name }))}
          />
        </Form.Item>
      )}
      {Object.entries(preset ? {} : (options?.limits ?? {})).map(([slot, { min, now }]) => (
        <Form.Item
          key={slot}
          name={['resources', slot]}
          label={t('endpoints.per-replica', { slot: t(`launcher.slot-${slot}`, slot) })}
          extra={t('launcher.can-start-now', { amount: shortAmount(slot, now) })}
        >
          <Input autoComplete="off" placeholder={shortAmount(slot, min)} />
        </Form.Item>
      ))}
      <ClusterFields />
    </>
  );
}

function ClusterFields() {
  const { t } = useTranslation();
  const size = Form.useWatch<number | undefined>('cluster_size') ?? 1;
  return (
    <>
      <Form.Item
        name="cluster_size"
        label={t('launcher.cluster-size')}
        extra={size > 1 ? t('endpoints.cluster-size-help') : undefined}
      >
        <InputNumber min={1} max={MAX_KERNELS} precision={0} placeholder="1" />
      </Form.Item>
      {size > 1 && (
        <Form.Item
          name="cluster_mode"
          label={t('launcher.cluster-mode')}
          initialValue="single-node"
        >
          <Radio.Group
            options={(['single-node', 'multi-node'] as const).map(value => ({
              value,
              label: t(`launcher.${value}`)
            }))}
          />
        </Form.Item>
      )}
    </>
  );
}
