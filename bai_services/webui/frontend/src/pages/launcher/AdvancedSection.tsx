import { useState } from 'react';
import { Alert, Button, Checkbox, Flex, Input, InputNumber, Select } from 'antd';
import { DeleteOutlined, PlusOutlined } from '@ant-design/icons';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../../data/accounts/me';
import { sessionsQuery, STATUS_GROUPS } from '../../data/sessions/sessions';
import { Field, idOf } from './Field';
import { isThreadVariable, repeatedNames, type VariableRow } from './form';
import { problemOf, useLauncher } from './launcherContext';

const MAX_PRIORITY = 100;
const MAX_CHOICES = 20;

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

/** Ports, dependencies, priority, and the callback URL. */
export function NetworkSection() {
  const { t } = useTranslation();
  const { form, change, options } = useLauncher();
  const limits = options?.preopen_limits;
  return (
    <>
      <Field
        name="preopen_ports"
        label={t('launcher.ports')}
        help={
          limits &&
          t('launcher.ports-help', {
            lowest: limits.lowest,
            highest: limits.highest,
            count: limits.count
          })
        }
      >
        <Select
          id={idOf('preopen_ports')}
          mode="tags"
          open={false}
          suffix={false}
          tokenSeparators={[',', ' ']}
          value={form.preopen_ports.map(String)}
          onChange={values =>
            change({ preopen_ports: values.map(Number).filter(Number.isInteger) })
          }
        />
      </Field>
      {form.type === 'batch' && <DependencyField />}
      <Field name="priority" label={t('launcher.priority')} help={t('launcher.priority-help')}>
        <InputNumber
          id={idOf('priority')}
          min={0}
          max={MAX_PRIORITY}
          precision={0}
          placeholder="10"
          value={form.priority}
          onChange={priority => change({ priority })}
        />
      </Field>
      <Field name="callback_url" label={t('launcher.callback')} help={t('launcher.callback-help')}>
        <Input
          id={idOf('callback_url')}
          placeholder="https://"
          value={form.callback_url}
          onChange={event => change({ callback_url: event.target.value })}
        />
      </Field>
    </>
  );
}

const LIVE = [...STATUS_GROUPS.pending, ...STATUS_GROUPS.running].join(',');

/**
 * Choice of the user's batch sessions that must succeed before the new session starts. The server
 * searches by name.
 */
function DependencyField() {
  const { t } = useTranslation();
  const { form, change } = useLauncher();
  const [text, setText] = useState('');
  const { data: me } = useQuery(meQuery);
  const filters = { owner: me?.username ?? '', status__in: LIVE, type: 'batch' };
  const sessions = useQuery({
    ...sessionsQuery({
      limit: MAX_CHOICES,
      offset: 0,
      sort: '-created_at',
      filters: { ...filters, ...(text ? { name__contains: text } : {}) }
    }),
    enabled: me !== undefined
  });
  return (
    <Field
      name="dependencies"
      label={t('launcher.dependencies')}
      help={t('launcher.dependencies-help')}
    >
      <Select
        id={idOf('dependencies')}
        mode="multiple"
        showSearch={{ filterOption: false, onSearch: setText }}
        value={form.dependencies}
        onChange={dependencies => change({ dependencies })}
        options={(sessions.data?.items ?? []).map(({ name }) => ({ value: name, label: name }))}
      />
    </Field>
  );
}
