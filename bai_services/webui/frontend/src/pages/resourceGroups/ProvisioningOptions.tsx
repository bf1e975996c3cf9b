import { Form, Input, InputNumber } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatSeconds } from '../../components/time';
import type { Item } from '../../data/entities';
import { OptionFacts, OptionsSection, optionValues } from './OptionsSection';

const DEFAULTS = {
  minimum: 0,
  maximum: 0,
  starts_per_hour: 20,
  idle: 600,
  join: 600,
  cooldown: 120
};
const NUMBERS = ['minimum', 'maximum', 'starts_per_hour'] as const;
const DURATIONS = ['idle', 'join', 'cooldown'] as const;

interface ProvisioningOptionsProps {
  group: Item;
  isWriter: boolean;
}

/** How many machines are started for the pending sessions of a group, and when they are stopped. */
export function ProvisioningOptions({ group, isWriter }: ProvisioningOptionsProps) {
  const { t, i18n } = useTranslation();
  const { machine, ...values } = optionValues<typeof DEFAULTS & { machine?: Item }>(
    group,
    'provisioning',
    DEFAULTS
  );
  if (machine === undefined) {
    // The slots of a machine are part of the scheduler options.
    return null;
  }
  const slots = Object.entries(machine).map(([slot, amount]) => `${slot}=${String(amount)}`);
  const label = (name: string) => t(`resource-groups.provisioning-${name.replaceAll('_', '-')}`);
  const facts = [
    [label('machine'), slots.join(' ')],
    ...NUMBERS.map(name => [label(name), values[name].toLocaleString(i18n.language)]),
    ...DURATIONS.map(name => [label(name), formatSeconds(values[name], i18n.language)])
  ];
  return (
    <OptionsSection
      group={group}
      isWriter={isWriter}
      option="provisioning"
      title={t('resource-groups.provisioning')}
      editLabel={t('resource-groups.provisioning-edit')}
      values={values}
      facts={<OptionFacts values={Object.fromEntries(facts) as Record<string, string>} />}
    >
      {NUMBERS.map(name => (
        <Form.Item key={name} name={name} rules={[{ required: true }]} label={label(name)}>
          <InputNumber min={0} precision={0} />
        </Form.Item>
      ))}
      {DURATIONS.map(name => (
        <Form.Item
          key={name}
          name={name}
          rules={[{ required: true }]}
          label={label(name)}
          extra={t('preemptions.duration-help')}
        >
          <Input />
        </Form.Item>
      ))}
    </OptionsSection>
  );
}
