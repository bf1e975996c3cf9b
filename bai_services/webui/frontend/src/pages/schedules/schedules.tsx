import { useEffect } from 'react';
import { Form } from 'antd';
import { useQuery } from '@tanstack/react-query';
import i18next from 'i18next';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import { meQuery } from '../../data/accounts/me';
import type { Item } from '../../data/entities';
import { timeZone } from '../../data/usage/reports';
import { labelOf, requestFacts } from './requestFacts';
import { RunStatus } from './RunStatus';

const RULES = ['mon-fri 08:00', 'mon-fri 19:00', 'daily 09:00', 'sat,sun 10:00', '0 8 * * 1-5'];
const OVERLAPS = ['skip', 'restart'];

const time = (text: unknown) =>
  typeof text === 'string' ? (
    <span className="bai-time">{formatTime(text, i18next.language)}</span>
  ) : (
    '–'
  );

/** A rule, with its time zone if that is not the reader's: all times of the page are local. */
function Rule({ item, rule }: { item: Item; rule: unknown }) {
  if (typeof rule !== 'string' || rule === '') {
    return '–';
  }
  const zone = String(item['time_zone']);
  return zone === timeZone() ? (
    rule
  ) : (
    <>
      {rule}
      <br />
      <small>{zone}</small>
    </>
  );
}

const nextStarts = (item: Item) => (item['next_starts'] ?? []) as string[];

export const SCHEDULES: Entity = {
  name: 'schedules',
  path: '/schedules',
  id: 'id',
  defaultSort: 'name',
  refreshMillis: 60_000,
  columns: [
    { key: 'name', isSortable: true },
    { key: 'next_starts', render: item => time(nextStarts(item)[0]) },
    { key: 'start', render: item => <Rule item={item} rule={item['start']} /> },
    { key: 'stop', render: item => <Rule item={item} rule={item['stop']} /> },
    { key: 'time_zone', isOptional: true },
    {
      key: 'last_status',
      isSortable: true,
      render: item => <RunStatus status={item['last_status'] as string | null} />
    },
    { key: 'is_paused', isSortable: true },
    { key: 'template', isSortable: true, isOptional: true },
    { key: 'request', isOptional: true, render: item => <Request item={item} /> },
    { key: 'catch_up_minutes', isOptional: true },
    { key: 'overlap', isOptional: true },
    { key: 'valid_from', isOptional: true, render: item => time(item['valid_from']) },
    { key: 'valid_until', isOptional: true },
    { key: 'last_start_at', isSortable: true, isOptional: true },
    { key: 'owner', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'name__contains' },
    { key: 'is_paused', isFlag: true },
    { key: 'owner__contains' }
  ],
  fields: [
    { key: 'name', kind: 'text', isRequired: true },
    { key: 'start', kind: 'suggested', choices: RULES, isRequired: true },
    { key: 'stop', kind: 'suggested', choices: RULES, isNullable: true },
    { key: 'time_zone', kind: 'suggested', choices: [timeZone(), 'UTC'], default: 'UTC' },
    {
      key: 'template',
      kind: 'reference',
      of: { path: '/session-templates', name: 'name' },
      isNullable: true
    },
    { key: 'request', kind: 'json' },
    { key: 'catch_up_minutes', kind: 'number', default: '30' },
    { key: 'overlap', kind: 'choice', choices: OVERLAPS, default: 'skip' },
    { key: 'valid_from', kind: 'time', isNullable: true },
    { key: 'valid_until', kind: 'time', isNullable: true },
    { key: 'is_paused', kind: 'switch' }
  ],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: true,
  canDelete: true,
  Prefill: LocalTimeZone
};

/** Fills in the time zone of the browser. */
function LocalTimeZone() {
  const form = Form.useFormInstance();
  useEffect(() => form.setFieldValue('time_zone', timeZone()), [form]);
  return null;
}

/** The fields of the sessions that the schedule creates. */
function Request({ item }: { item: Item }) {
  const { t, i18n } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const projects = new Map((me?.projects ?? []).map(({ id, name }) => [id, name]));
  const facts = requestFacts((item['request'] ?? {}) as Record<string, unknown>, projects);
  return facts.length === 0 ? (
    '–'
  ) : (
    <ul className="bai-facts">
      {facts.map(([field, text]) => (
        <li key={field}>
          {i18n.exists(labelOf(field)) ? t(labelOf(field)) : field}: <UserText text={text} />
        </li>
      ))}
    </ul>
  );
}
