import { Select, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { numberOf } from '../../components/amount';
import { formatBytes } from '../../components/bytes';
import type { SessionOptions } from '../../data/sessions/launch';
import { Field, idOf } from './Field';
import { useLauncher } from './launcherContext';
import { SlotField } from './SlotField';

const isDevice = (slot: string) => slot.includes('.');

/** Kind and amount of devices: none, shares, or whole devices. */
export function DeviceFields() {
  const { t } = useTranslation();
  const { form, change, options, preview } = useLauncher();
  const slots = Object.entries(options?.limits ?? {})
    .filter(([slot, limit]) => isDevice(slot) && numberOf(limit.largest) > 0)
    .map(([slot]) => slot);
  if (!options || slots.length === 0) {
    return null;
  }
  const inEffect = { ...preview?.session?.requested, ...form.resources };
  const chosen = slots.find(slot => numberOf(inEffect[slot] ?? '') > 0);
  const choose = (slot: string | undefined) => {
    const others = Object.entries(form.resources).filter(([name]) => !isDevice(name));
    const initial = slot?.endsWith('.shares') ? '0.25' : '1';
    change({
      preset: '',
      resources: { ...Object.fromEntries(others), ...(slot ? { [slot]: initial } : {}) }
    });
  };
  return (
    <>
      <Field name="resources" label={t('launcher.devices')}>
        <Select
          id={idOf('resources')}
          allowClear={{ label: t('launcher.clear') }}
          placeholder={t('launcher.no-device')}
          value={chosen}
          onChange={choose}
          options={slots.map(slot => ({ value: slot, label: t(`launcher.slot-${slot}`, slot) }))}
        />
      </Field>
      {chosen && <SlotField slot={chosen} />}
      {chosen && <DeviceHelp slot={chosen} amount={inEffect[chosen] ?? ''} options={options} />}
    </>
  );
}

/** The available devices, the memory of the share, and the enforcement of shares. */
function DeviceHelp(props: { slot: string; amount: string; options: SessionOptions }) {
  const { t, i18n } = useTranslation();
  const [family] = props.slot.split('.');
  const share = props.slot.endsWith('.shares') ? numberOf(props.amount) : 1;
  const enforcement = props.options.limits[props.slot]?.enforcement;
  const models = props.options.device_models.filter(model => model.family === family);
  return (
    <Typography.Paragraph type="secondary">
      {models.map(({ model, memory_bytes: bytes, count }) => (
        <div key={`${model}-${bytes}`}>
          {t('launcher.device-model', { count, model: model || family })}
          {bytes !== null &&
            ` · ${t(share < 1 ? 'launcher.share-memory' : 'launcher.device-memory', {
              memory: formatBytes(share < 1 ? share * bytes : bytes, i18n.language)
            })}`}
        </div>
      ))}
      {enforcement && <div>{t(`enforcement.${enforcement}`)}</div>}
    </Typography.Paragraph>
  );
}
