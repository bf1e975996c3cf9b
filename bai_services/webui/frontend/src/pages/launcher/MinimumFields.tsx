import { Flex, Input } from 'antd';
import { useTranslation } from 'react-i18next';
import { Field, idOf } from './Field';
import { useLauncher } from './launcherContext';

const SLOTS = ['cpu', 'mem'];

/**
 * The minimum cpu, memory and device shares with which an elastic session can start. Only sessions
 * with one kernel can be elastic.
 */
export function MinimumFields() {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  const shares = Object.keys(form.resources).filter(slot => slot.endsWith('.shares'));
  if (form.cluster_size > 1) {
    return null;
  }
  return (
    <Flex wrap gap="middle">
      {[...SLOTS, ...shares].map((slot, index) => (
        <Field
          key={slot}
          name={`minimum_resources.${slot}`}
          label={t('launcher.minimum', { slot: t(`launcher.slot-${slot}`, slot) })}
          help={index === 0 ? t('launcher.minimum-help') : undefined}
        >
          <Input
            id={idOf(`minimum_resources.${slot}`)}
            style={{ width: 160 }}
            placeholder={t('launcher.minimum-none')}
            value={form.minimum_resources[slot] ?? ''}
            onChange={event =>
              change({
                minimum_resources: {
                  ...form.minimum_resources,
                  [slot]: event.target.value.trim()
                }
              })
            }
          />
        </Field>
      ))}
    </Flex>
  );
}
