import { useState } from 'react';
import { Checkbox, Input, InputNumber, Select } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../../data/accounts/me';
import { sessionsQuery, STATUS_GROUPS } from '../../data/sessions/sessions';
import { Field, idOf } from './Field';
import { useLauncher } from './launcherContext';

const MAX_PRIORITY = 100;
const MAX_CHOICES = 20;

/** Ports, dependencies, priorities, preemption, and the callback URL. */
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
      <Field
        name="job_priority"
        label={t('launcher.job-priority')}
        help={t('launcher.job-priority-help')}
      >
        <InputNumber
          id={idOf('job_priority')}
          min={0}
          max={MAX_PRIORITY}
          precision={0}
          placeholder="0"
          value={form.job_priority}
          onChange={job_priority => change({ job_priority })}
        />
      </Field>
      <Field name="is_preemptible" label="" help={t('launcher.not-preemptible-help')}>
        <Checkbox
          id={idOf('is_preemptible')}
          checked={!form.is_preemptible}
          onChange={event => change({ is_preemptible: !event.target.checked })}
        >
          {t('launcher.not-preemptible')}
        </Checkbox>
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
  const filters = { owner: form.owner || (me?.username ?? ''), status__in: LIVE, type: 'batch' };
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
