import type { Entity, Field } from '../../components/entities/entity';
import type { Item } from '../../data/entities';
import { IdleReason } from './IdleReason';
import { SessionLink } from './SessionLink';

const SESSION_TYPES = ['interactive', 'batch', 'inference'];
const TYPES = ['network', 'session-lifetime', 'utilization'];
const SCOPES = ['domain', 'project', 'resource-group', 'user', 'keypair-policy'];
const NUMBERS: readonly string[] = ['initial_grace_seconds', 'idle_percent'];
const number = (key: string, value: string): Field => ({ key, kind: 'number', default: value });

const CHECKERS: Entity = {
  name: 'idle-checkers',
  path: '/idle-checkers',
  id: 'id',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    { key: 'type', isSortable: true },
    { key: 'max_seconds' },
    { key: 'thresholds' },
    { key: 'session_types' },
    { key: 'bindings' },
    { key: 'description', isSortable: true, isOptional: true },
    { key: 'operator', isOptional: true },
    ...NUMBERS.map(key => ({ key, isOptional: true })),
    { key: 'min_seconds_under_pressure', isOptional: true },
    { key: 'only_under_pressure', isOptional: true },
    { key: 'warnings_seconds', isOptional: true },
    { key: 'max_keep_alives', isOptional: true },
    { key: 'allows_exclusion', isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'name__contains' }],
  fields: [
    { key: 'name', kind: 'text', isRequired: true },
    { key: 'description', kind: 'text' },
    { key: 'type', kind: 'choice', choices: TYPES, isRequired: true, only: 'create' },
    { key: 'max_seconds', kind: 'number', isRequired: true },
    { key: 'thresholds', kind: 'numbers' },
    { key: 'operator', kind: 'choice', choices: ['and', 'or'], default: 'and' },
    number('idle_percent', '90'),
    { key: 'session_types', kind: 'choices', choices: SESSION_TYPES, default: 'interactive' },
    number('initial_grace_seconds', '0'),
    number('min_seconds_under_pressure', '0'),
    { key: 'only_under_pressure', kind: 'switch' },
    { key: 'warnings_seconds', kind: 'words', default: '600, 120' },
    number('max_keep_alives', '3'),
    { key: 'allows_exclusion', kind: 'switch' }
  ],
  writers: ['superadmin'],
  canCreate: true,
  canDelete: true
};

const BINDINGS: Entity = {
  name: 'idle-bindings',
  path: '/idle-checker-bindings',
  id: 'id',
  defaultSort: 'checker',
  columns: [
    { key: 'checker', isSortable: true },
    { key: 'scope', isSortable: true },
    { key: 'scope_name', isSortable: true },
    { key: 'is_enabled' },
    { key: 'is_dry_run' },
    { key: 'changed_by_role', isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'checker__contains' }, { key: 'scope_name__contains' }],
  fields: [
    {
      key: 'checker',
      kind: 'reference',
      of: { path: '/idle-checkers', name: 'name' },
      isRequired: true,
      only: 'create'
    },
    { key: 'scope', kind: 'choice', choices: SCOPES, isRequired: true, only: 'create' },
    { key: 'scope_key', kind: 'text', isRequired: true, only: 'create' },
    { key: 'is_enabled', kind: 'switch', only: 'change' },
    { key: 'is_dry_run', kind: 'switch' }
  ],
  writers: ['superadmin', 'admin'],
  isWritable: (item: Item, role: string) =>
    role === 'superadmin' || item['changed_by_role'] === 'admin',
  canCreate: true,
  canDelete: true
};

const DECISIONS: Entity = {
  name: 'idle-decisions',
  path: '/idle-decisions',
  id: 'id',
  defaultSort: '-at',
  columns: [
    { key: 'session', isSortable: true, render: item => <SessionLink item={item} /> },
    { key: 'at', isSortable: true },
    { key: 'checker', isSortable: true },
    { key: 'owner', isSortable: true },
    { key: 'domain', isSortable: true, isOptional: true },
    { key: 'is_dry_run' },
    { key: 'reason', render: item => <IdleReason item={item} /> }
  ],
  filters: [
    { key: 'session__contains' },
    { key: 'checker__contains' },
    { key: 'owner__contains' },
    { key: 'is_dry_run', isFlag: true }
  ],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

export const IDLE_ENTITIES: readonly Entity[] = [CHECKERS, BINDINGS, DECISIONS];
