import { Flex, InputNumber, Radio } from 'antd';
import { useTranslation } from 'react-i18next';
import { Field, idOf } from './Field';
import { isThreadVariable, THREAD_VARIABLES } from './form';
import { useLauncher } from './launcherContext';

const MAX_THREADS = 1024;

/** Thread counts of numerical libraries: the number of cores, or numbers that the user enters. */
export function ThreadFields() {
  const { t } = useTranslation();
  const { form, change, preview } = useLauncher();
  const isManual = form.environ.some(isThreadVariable);
  const others = form.environ.filter(variable => !isThreadVariable(variable));
  const cores = String(Math.max(1, Math.ceil(Number(preview?.session?.requested['cpu'] ?? 1))));
  const set = (name: string, value: string) =>
    change({
      environ: form.environ.map(old => (old.name === name ? { ...old, value } : old))
    });
  const setManual = (manual: boolean) => {
    const threads = THREAD_VARIABLES.map(name => ({ name, value: cores, isSecret: false }));
    change({ environ: manual ? [...others, ...threads] : others });
  };
  return (
    <>
      <Field name="threads" label={t('launcher.threads')} help={t('launcher.threads-help')}>
        <Radio.Group
          id={idOf('threads')}
          value={isManual}
          onChange={event => setManual(event.target.value as boolean)}
          options={[
            { value: false, label: t('launcher.threads-automatic') },
            { value: true, label: t('launcher.threads-manual') }
          ]}
        />
      </Field>
      <Flex wrap gap="middle">
        {form.environ.filter(isThreadVariable).map(({ name, value }) => (
          <Field key={name} name={`environ.${name}`} label={name}>
            <InputNumber
              id={idOf(`environ.${name}`)}
              min={1}
              max={MAX_THREADS}
              precision={0}
              value={Number(value) || 1}
              onChange={number => set(name, String(number ?? 1))}
            />
          </Field>
        ))}
      </Flex>
    </>
  );
}
