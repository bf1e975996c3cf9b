import { DatePicker, Flex, Input, InputNumber, Radio, Select } from 'antd';
import dayjs from 'dayjs';
import { useTranslation } from 'react-i18next';
import { Field, idOf } from './Field';
import { useLauncher } from './launcherContext';
import { OwnerField } from './OwnerField';
import { spanOf, UNITS } from '../../components/span';

const TYPES = ['interactive', 'batch'] as const;

/** Type and name of the session; the command and times of a batch session. */
export function TypeSection() {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  return (
    <>
      <OwnerField />
      <Field name="type" label={t('launcher.type')}>
        <Radio.Group
          id={idOf('type')}
          optionType="button"
          value={form.type}
          onChange={event => change({ type: event.target.value as 'interactive' | 'batch' })}
          options={TYPES.map(value => ({ value, label: t(`types.${value}`) }))}
        />
      </Field>
      <Field name="name" label={t('launcher.name')} help={t('launcher.name-help')}>
        <Input
          id={idOf('name')}
          value={form.name}
          onChange={event => change({ name: event.target.value })}
        />
      </Field>
      {form.type === 'batch' && <BatchFields />}
    </>
  );
}

function BatchFields() {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  return (
    <>
      <Field name="startup_command" label={t('launcher.command')}>
        <Input.TextArea
          id={idOf('startup_command')}
          autoSize={{ minRows: 2, maxRows: 8 }}
          style={{ fontFamily: 'monospace' }}
          placeholder="python train.py"
          value={form.startup_command}
          onChange={event => change({ startup_command: event.target.value })}
        />
      </Field>
      <Flex wrap gap="middle">
        <Field name="starts_at" label={t('launcher.starts-at')} help={t('launcher.starts-at-help')}>
          <DatePicker
            id={idOf('starts_at')}
            showTime
            // Otherwise a text that the user has typed would disappear without *OK* or Enter.
            needConfirm={false}
            value={form.starts_at ? dayjs(form.starts_at) : null}
            onChange={value => change({ starts_at: value ? value.toISOString() : '' })}
          />
        </Field>
        <Field name="batch_timeout" label={t('launcher.timeout')}>
          <Timeout />
        </Field>
      </Flex>
    </>
  );
}

/** A duration such as `90m`, as a number and a unit. */
function Timeout() {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  const { count, unit } = spanOf(form.batch_timeout) ?? { count: null, unit: 'h' };
  return (
    <Flex gap={4}>
      <InputNumber
        id={idOf('batch_timeout')}
        min={1}
        precision={0}
        value={count}
        onChange={value => change({ batch_timeout: value === null ? '' : `${value}${unit}` })}
      />
      <Select
        aria-label={t('launcher.timeout-unit')}
        value={unit}
        style={{ width: 110 }}
        onChange={value => change({ batch_timeout: `${count ?? 1}${value}` })}
        options={UNITS.map(value => ({ value, label: t(`launcher.unit-${value}`) }))}
      />
    </Flex>
  );
}
