import { Alert, Button, Checkbox, Flex, Input } from 'antd';
import { DeleteOutlined, PlusOutlined } from '@ant-design/icons';
import { useTranslation } from 'react-i18next';
import { Field, idOf } from './Field';
import { isThreadVariable, repeatedNames, type VariableRow } from './form';
import { problemOf, useLauncher } from './launcherContext';

/** Environment variables. Values of secret variables are masked and are not part of the URL. */
export function EnvironmentSection() {
  const { t } = useTranslation();
  const { form, change, preview } = useLauncher();
  const set = (index: number, changes: Partial<VariableRow>) =>
    change({
      environ: form.environ.map((old, n) => (n === index ? { ...old, ...changes } : old))
    });
  // `ThreadFields` edits the variables that set a number of threads.
  const rows = form.environ
    .map((variable, index) => ({ variable, index }))
    .filter(({ variable }) => !isThreadVariable(variable));
  const problem = problemOf(preview, 'environ') ?? problemOf(preview, 'secret_environ');
  return (
    <>
      {problem && <p role="alert">{problem}</p>}
      {repeatedNames(form.environ).map(name => (
        <Alert
          key={name}
          type="warning"
          showIcon
          style={{ marginBottom: 8 }}
          title={t('launcher.repeated-variable', { name })}
        />
      ))}
      {rows.map(({ variable, index }) => (
        <Flex key={index} wrap gap="small" align="start">
          <Field name={`environ.${variable.name}`} label={t('launcher.variable')}>
            <Input
              id={idOf(`environ.${variable.name}`)}
              value={variable.name}
              onChange={event => set(index, { name: event.target.value })}
            />
          </Field>
          <Field name="" label={t('launcher.value')}>
            <Input
              aria-label={t('launcher.value-of', { name: variable.name })}
              type={variable.isSecret ? 'password' : 'text'}
              autoComplete="off"
              value={variable.value}
              onChange={event => set(index, { value: event.target.value })}
            />
          </Field>
          <Flex gap="small" align="center" style={{ marginBlockStart: 30 }}>
            <Checkbox
              checked={variable.isSecret}
              onChange={event => set(index, { isSecret: event.target.checked })}
            >
              {t('launcher.secret')}
            </Checkbox>
            <Button
              type="text"
              icon={<DeleteOutlined />}
              aria-label={t('launcher.remove-variable', { name: variable.name })}
              onClick={() => change({ environ: form.environ.filter((_, n) => n !== index) })}
            />
          </Flex>
        </Flex>
      ))}
      <Button
        icon={<PlusOutlined />}
        onClick={() =>
          change({ environ: [...form.environ, { name: '', value: '', isSecret: false }] })
        }
      >
        {t('launcher.add-variable')}
      </Button>
    </>
  );
}
