import { Flex, Input, Slider } from 'antd';
import { useTranslation } from 'react-i18next';
import { numberOf, shortAmount } from '../../components/amount';
import { Field, idOf } from './Field';
import { imageOf } from './form';
import { useLauncher } from './launcherContext';

const GIB = 1024 ** 3;

/** Step and unit of a slot's slider: 0.5 GiB for memory, 0.05 for shares, 1 for other slots. */
function scaleOf(slot: string): { step: number; textOf: (value: number) => string; unit: number } {
  if (slot === 'mem') {
    return { step: 0.5, textOf: value => `${value}g`, unit: GIB };
  }
  if (slot.endsWith('.shares')) {
    return { step: 0.05, textOf: value => String(Number(value.toFixed(2))), unit: 1 };
  }
  return { step: 1, textOf: String, unit: 1 };
}

/**
 * An amount as a slider and as text. The slider ends at the maximum that the session may have. It
 * marks the amount that is free now; a session that requests more is queued.
 */
export function SlotField({ slot }: { slot: string }) {
  const { t } = useTranslation();
  const { form, change, options, preview } = useLauncher();
  const limit = options?.limits[slot];
  if (!limit) {
    return null;
  }
  const { step, textOf, unit } = scaleOf(slot);
  const preset = options.presets.find(({ name }) => name === form.preset);
  const image = imageOf(form, options);
  const inEffect =
    preview?.session?.requested[slot] ?? preset?.resources[slot] ?? image?.min[slot] ?? limit.min;
  const amount = form.resources[slot] ?? '';
  const most = Math.max(numberOf(limit.max) / unit, step);
  const now = numberOf(limit.now) / unit;
  const set = (text: string) => change({ resources: { ...form.resources, [slot]: text } });
  const label = t(`launcher.slot-${slot}`, slot);
  return (
    <Field
      name={`resources.${slot}`}
      label={label}
      help={[
        t('launcher.can-start-now', { amount: shortAmount(slot, limit.now) }),
        limit.allowed !== null &&
          t('launcher.you-may-have', { amount: shortAmount(slot, limit.allowed) }),
        t('launcher.largest-agent', { amount: shortAmount(slot, limit.largest) })
      ]
        .filter(Boolean)
        .join(' · ')}
    >
      <Flex gap="middle" align="center">
        <Slider
          style={{ flex: 1 }}
          min={0}
          max={Math.floor(most / step) * step}
          step={step}
          marks={{ [now]: { label: '▲', style: { fontSize: 8 } } }}
          value={numberOf(amount || inEffect) / unit}
          tooltip={{ formatter: value => textOf(value ?? 0) }}
          onChange={value => set(textOf(Math.max(value, step)))}
          ariaLabelForHandle={label}
        />
        <Input
          id={idOf(`resources.${slot}`)}
          style={{ width: 96 }}
          placeholder={shortAmount(slot, inEffect)}
          value={amount}
          onChange={event => set(event.target.value.trim())}
        />
      </Flex>
    </Field>
  );
}
