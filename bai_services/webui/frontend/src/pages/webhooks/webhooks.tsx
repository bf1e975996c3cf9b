import { Tag } from '../../components/Tag';
import type { Entity, Field } from '../../components/entities/entity';
import { CHANGED_BY_ROLE, isChangeableBy } from '../../components/entities/sharedObjects';
import type { Item } from '../../data/entities';
import { EVENT_NAMES } from '../../data/notifications';
import { LANGUAGES } from '../../i18n';
import { WebhookState } from './WebhookState';

const KINDS = ['json', 'slack'] as const;
const choices = (values: readonly string[]) => values.map(value => ({ value, label: value }));

const URL_FIELDS: readonly Field[] = [
  { key: 'url', kind: 'text', isRequired: true, only: 'create' },
  { key: 'url', kind: 'text', only: 'change' }
];
const KIND: Field = { key: 'kind', kind: 'choice', choices: KINDS, only: 'create' };
const NAME: Field = { key: 'name', kind: 'text' };
const LANGUAGE: Field = { key: 'language', kind: 'choice', choices: Object.keys(LANGUAGES) };
const IS_ENABLED: Field = { key: 'is_enabled', kind: 'switch', only: 'change' };

const COLUMNS = {
  name: { key: 'name', isSortable: true },
  kind: { key: 'kind', isSortable: true },
  host: { key: 'host', isSortable: true },
  state: { key: 'state', render: (item: Item) => <WebhookState webhook={item} /> },
  delivered: { key: 'last_delivered_at', isSortable: true, isOptional: true },
  error: { key: 'last_error', isOptional: true },
  pending: { key: 'pending', isOptional: true }
};

const BASE = {
  path: '/webhooks',
  id: 'id',
  defaultSort: 'name',
  drawerWidth: 900,
  canCreate: true,
  canDelete: true
} as const;

/** The user's own webhooks: they receive the events for which the user chose their channel. */
export const OWN_WEBHOOKS: Entity = {
  ...BASE,
  name: 'webhooks',
  columns: [
    COLUMNS.name,
    COLUMNS.kind,
    COLUMNS.host,
    COLUMNS.state,
    COLUMNS.delivered,
    COLUMNS.error,
    COLUMNS.pending
  ],
  filters: [],
  fields: [...URL_FIELDS, KIND, NAME, IS_ENABLED],
  writers: ['user', 'admin', 'superadmin', 'monitor'],
  isWritable: item => item['is_own'] === true
};

/** Webhooks of administrators, for events of a domain or of the installation. */
export const WEBHOOKS: Entity = {
  ...BASE,
  name: 'webhooks',
  columns: [
    COLUMNS.name,
    COLUMNS.kind,
    COLUMNS.host,
    {
      key: 'domain',
      isSortable: true,
      render: ({ domain }) => (typeof domain === 'string' ? <Tag>{domain}</Tag> : '–')
    },
    { key: 'events' },
    COLUMNS.state,
    COLUMNS.delivered,
    COLUMNS.error,
    COLUMNS.pending,
    { key: 'dropped', isOptional: true },
    { key: 'language', isOptional: true },
    CHANGED_BY_ROLE
  ],
  filters: [
    { key: 'name__contains' },
    { key: 'host__contains' },
    { key: 'kind', choices: choices(KINDS) }
  ],
  fields: [
    ...URL_FIELDS,
    KIND,
    NAME,
    { key: 'scope', kind: 'choice', choices: ['domain', 'all'], only: 'create', isRequired: true },
    { key: 'domain', kind: 'reference', of: { path: '/domains', name: 'name' }, only: 'create' },
    { key: 'events', kind: 'choices', choices: EVENT_NAMES },
    LANGUAGE,
    IS_ENABLED
  ],
  writers: ['admin', 'superadmin'],
  isWritable: isChangeableBy
};
