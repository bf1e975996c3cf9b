import { Alert, Flex, Input, InputNumber, Radio, Select, Skeleton, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { SlotTags } from '../../components/SlotTags';
import type { SessionOptions } from '../../data/sessions/launch';
import { AgentField } from './AgentField';
import { DeviceFields } from './DeviceFields';
import { EnvironmentSection } from './EnvironmentSection';
import { Field, idOf } from './Field';
import { ImageField } from './ImageField';
import { MAX_KERNELS } from '../../data/sessions/launch';
import { useLauncher } from './launcherContext';
import { MinimumFields } from './MinimumFields';
import { presetState } from './presets';
import { SlotField } from './SlotField';
import { ThreadFields } from './ThreadFields';
import { isolated } from '../../i18n/userText';

const BASIC_SLOTS = ['cpu', 'mem'];

/** Project, group, image, environment variables, resources, number of kernels, and agent. */
export function ResourceSection() {
  const { t } = useTranslation();
  const { form, change, options } = useLauncher();
  if (!options) {
    return <Skeleton active />;
  }
  const group = options.resource_groups.find(({ name }) => name === options.resource_group);
  return (
    <>
      <Flex wrap gap="middle">
        {options.projects.length > 1 && (
          <Field name="project" label={t('launcher.project')}>
            <Select
              id={idOf('project')}
              style={{ minWidth: 200 }}
              value={form.project || (options.project ?? '')}
              onChange={project => change({ project, resource_group: '', preset: '' })}
              options={options.projects.map(({ id, name }) => ({ value: id, label: name }))}
            />
          </Field>
        )}
        {options.resource_groups.length > 1 && (
          <Field name="resource_group" label={t('launcher.group')}>
            <Select
              id={idOf('resource_group')}
              style={{ minWidth: 200 }}
              value={form.resource_group || (options.resource_group ?? '')}
              onChange={resource_group => change({ resource_group, preset: '' })}
              options={options.resource_groups.map(({ name, description }) => ({
                value: name,
                label: description ? `${name} (${isolated(description)})` : name
              }))}
            />
          </Field>
        )}
      </Flex>
      {group?.notices.map(notice => (
        <Alert key={notice} type="warning" showIcon title={notice} style={{ marginBottom: 12 }} />
      ))}
      <ImageField options={options} />
      <Typography.Title level={5}>{t('launcher.section-environment')}</Typography.Title>
      <EnvironmentSection />
      <Typography.Title level={5} style={{ marginBlockStart: 24 }}>
        {t('launcher.section-amounts')}
      </Typography.Title>
      <PresetField options={options} />
      {BASIC_SLOTS.map(slot => (
        <SlotField key={slot} slot={slot} />
      ))}
      <DeviceFields />
      <MinimumFields />
      <Field
        name="shared_memory"
        label={t('launcher.shared-memory')}
        help={t('launcher.shared-memory-help')}
      >
        <Input
          id={idOf('shared_memory')}
          style={{ width: 160 }}
          placeholder="64m"
          value={form.shared_memory}
          onChange={event => change({ shared_memory: event.target.value })}
        />
      </Field>
      <ThreadFields />
      <ClusterFields />
      <AgentField />
    </>
  );
}

/**
 * Choice of a preset. The selection discards entered amounts. Presets that cannot start now can
 * also be selected.
 */
function PresetField({ options }: { options: SessionOptions }) {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  const presets = options.presets.map(preset => ({
    ...preset,
    state: presetState(preset, options.limits)
  }));
  return (
    <Field name="preset" label={t('launcher.preset')}>
      <Select
        id={idOf('preset')}
        allowClear={{ label: t('launcher.clear') }}
        placeholder={t('launcher.preset-none')}
        value={form.preset || undefined}
        onChange={(preset: string | undefined) => change({ preset: preset ?? '', resources: {} })}
        options={presets.map(({ name, resources, state }) => ({
          value: name,
          label: (
            <Flex gap="small" align="center" wrap>
              <span>{name}</span>
              <SlotTags slots={resources} />
              {state !== 'now' && (
                <Typography.Text type="secondary">{t(`launcher.preset-${state}`)}</Typography.Text>
              )}
            </Flex>
          )
        }))}
      />
    </Field>
  );
}

function ClusterFields() {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  return (
    <Flex wrap gap="middle">
      <Field
        name="cluster_size"
        label={t('launcher.cluster-size')}
        help={form.cluster_size > 1 ? t('launcher.cluster-size-help') : undefined}
      >
        <InputNumber
          id={idOf('cluster_size')}
          min={1}
          max={MAX_KERNELS}
          precision={0}
          value={form.cluster_size}
          onChange={value => change({ cluster_size: value ?? 1 })}
        />
      </Field>
      {form.cluster_size > 1 && (
        <Field name="cluster_mode" label={t('launcher.cluster-mode')}>
          <Radio.Group
            id={idOf('cluster_mode')}
            value={form.cluster_mode}
            onChange={event =>
              change({ cluster_mode: event.target.value as 'single-node' | 'multi-node' })
            }
            options={(['single-node', 'multi-node'] as const).map(value => ({
              value,
              label: t(`launcher.${value}`)
            }))}
          />
        </Field>
      )}
    </Flex>
  );
}
