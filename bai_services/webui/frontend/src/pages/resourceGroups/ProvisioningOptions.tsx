import { Form, Input, InputNumber } from 'antd';
import { useTranslation } from 'react-i18next';
import { slotsToText, textToSlots } from '../../components/entities/values';
import { formatSeconds } from '../../components/time';
import type { Item } from '../../data/entities';
import { OptionFacts, OptionsSection, optionValues } from './OptionsSection';

const DEFAULTS = {
  architecture: 'x86_64',
  minimum: 0,
  maximum: 0,
  starts_per_hour: 20,
  idle: 600,
  join: 600,
  cooldown: 120
};
const NUMBERS = ['maximum', 'minimum', 'starts_per_hour'] as const;
const DURATIONS = ['idle', 'join', 'cooldown'] as const;

type Slots = Record<string, string | null>;
type Stored = typeof DEFAULTS & { machine?: Slots };
/** `machine` is a text such as `cpu=8 mem=32g`. */
type FormValues = typeof DEFAULTS & { machine: string };

interface ProvisioningOptionsProps {
  group: Item;
  isWriter: boolean;
}

/** How many machines are started for the pending sessions of a group, and when they are stopped. */
export function ProvisioningOptions({ group, isWriter }: ProvisioningOptionsProps) {
  const { t, i18n } = useTranslation();
  const stored = optionValues<Stored>(group, 'provisioning', DEFAULTS);
  const machine = stored.machine ?? {};
  const text = slotsToText(machine);
  const isOff = text === '';
  // With the default of the option, 0 machines, a new form would change nothing.
  const values = { ...stored, machine: text, maximum: isOff ? 1 : stored.maximum };
  const label = (name: string) => t(`resource-groups.provisioning-${name.replaceAll('_', '-')}`);
  const facts = [
    [label('machine'), `${values.machine} (${values.architecture})`],
    ...NUMBERS.map(name => [label(name), values[name].toLocaleString(i18n.language)]),
    ...DURATIONS.map(name => [label(name), formatSeconds(values[name], i18n.language)])
  ];
  return (
    <OptionsSection<FormValues>
      group={group}
      isWriter={isWriter}
      option="provisioning"
      title={t('resource-groups.provisioning')}
      editLabel={t('resource-groups.provisioning-edit')}
      values={values}
      toOption={changed => ({ ...changed, machine: changedSlots(machine, changed.machine) })}
      facts={
        isOff ? (
          t('resource-groups.option-off')
        ) : (
          <OptionFacts values={Object.fromEntries(facts) as Record<string, string>} />
        )
      }
    >
      <Form.Item
        name="machine"
        rules={[
          { required: true },
          {
            validator: (_: unknown, text?: string) =>
              textToSlots(text ?? '') === undefined
                ? Promise.reject(new Error(t('entities.hint-slots')))
                : Promise.resolve()
          }
        ]}
        label={label('machine')}
        extra={t('entities.hint-slots')}
      >
        <Input />
      </Form.Item>
      <Form.Item name="architecture" rules={[{ required: true }]} label={label('architecture')}>
        <Input />
      </Form.Item>
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

/** Return the slots in a text; slots that were stored and are missing in the text are null. */
function changedSlots(stored: Slots, text: string): Slots {
  const removed = Object.keys(stored).map(slot => [slot, null]);
  return { ...(Object.fromEntries(removed) as Slots), ...textToSlots(text) };
}
