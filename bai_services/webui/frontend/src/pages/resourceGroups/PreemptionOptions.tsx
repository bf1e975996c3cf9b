import { Form, Input, InputNumber, Select, Switch, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatSeconds } from '../../components/time';
import type { Item } from '../../data/entities';
import { OptionFacts, OptionsSection, optionValues } from './OptionsSection';

const SCOPES = ['resource-group', 'domain', 'project', 'user'];
const ORDERS = ['newest', 'oldest', 'fewest-sessions', 'smallest-resources'];
const MODES = ['reschedule', 'terminate'];
const DEFAULTS = {
  enabled: false,
  preemptible_priority: 5,
  victim_scope: 'resource-group',
  order: 'newest',
  min_runtime: 0,
  mode: 'reschedule',
  over_fair_share: false,
  grace: 60
};
type Options = typeof DEFAULTS;

interface PreemptionOptionsProps {
  group: Item;
  isWriter: boolean;
}

/** Whether and how sessions of a resource group are stopped for sessions of higher priority. */
export function PreemptionOptions({ group, isWriter }: PreemptionOptionsProps) {
  const { t } = useTranslation();
  const values = optionValues(group, 'preemption', DEFAULTS);
  const choices = (prefix: string, names: string[]) =>
    names.map(value => ({ value, label: t(`preemptions.${prefix}-${value}`) }));
  return (
    <OptionsSection<Options>
      group={group}
      isWriter={isWriter}
      option="preemption"
      title={t('preemptions.title')}
      editLabel={t('preemptions.edit')}
      values={values}
      facts={<Facts options={values} />}
    >
      <Form.Item name="enabled" label={t('preemptions.enabled')} valuePropName="checked">
        <Switch />
      </Form.Item>
      <Form.Item
        name="preemptible_priority"
        rules={[{ required: true }]}
        label={t('preemptions.preemptible-priority')}
        extra={t('preemptions.preemptible-priority-help')}
      >
        <InputNumber min={0} max={100} precision={0} />
      </Form.Item>
      <Form.Item name="victim_scope" label={t('preemptions.victim-scope')}>
        <Select options={choices('scope', SCOPES)} />
      </Form.Item>
      <Form.Item name="order" label={t('preemptions.order')}>
        <Select options={choices('order', ORDERS)} />
      </Form.Item>
      <Form.Item
        name="min_runtime"
        label={t('preemptions.min-runtime')}
        extra={t('preemptions.duration-help')}
      >
        <Input />
      </Form.Item>
      <Form.Item name="mode" label={t('preemptions.mode')}>
        <Select options={choices('mode', MODES)} />
      </Form.Item>
      <Form.Item
        name="over_fair_share"
        label={t('preemptions.over-fair-share')}
        extra={t('preemptions.over-fair-share-help')}
        valuePropName="checked"
      >
        <Switch />
      </Form.Item>
      <Form.Item name="grace" label={t('preemptions.grace')} extra={t('preemptions.duration-help')}>
        <Input />
      </Form.Item>
    </OptionsSection>
  );
}

function Facts({ options }: { options: Options }) {
  const { t, i18n } = useTranslation();
  if (!options.enabled) {
    return <Typography.Text type="secondary">{t('preemptions.off')}</Typography.Text>;
  }
  const values: Record<string, string> = {
    'preemptible-priority': String(options.preemptible_priority),
    'victim-scope': t(`preemptions.scope-${options.victim_scope}`),
    order: t(`preemptions.order-${options.order}`),
    'min-runtime': formatSeconds(options.min_runtime, i18n.language),
    mode: t(`preemptions.mode-${options.mode}`),
    'over-fair-share': t(options.over_fair_share ? 'preemptions.yes' : 'preemptions.no'),
    grace: formatSeconds(options.grace, i18n.language)
  };
  const labelled = Object.entries(values).map(([key, text]) => [t(`preemptions.${key}`), text]);
  return <OptionFacts values={Object.fromEntries(labelled) as Record<string, string>} />;
}
