import type { Bounds, Entity } from '../../components/entities/entity';
import { CHANGED_BY_ROLE, isChangeableBy } from '../../components/entities/sharedObjects';
import type { Item } from '../../data/entities';
import { IdleReason } from './IdleReason';
import { SessionLink } from './SessionLink';
import { Thresholds } from './Thresholds';
import { thresholdBounds } from './thresholdValue';

const SESSION_TYPES = ['interactive', 'batch', 'inference'];
const TYPES = ['network', 'session-lifetime', 'utilization'];
const SCOPES = ['domain', 'project', 'resource-group', 'user', 'keypair-policy'];
const NUMBERS: readonly string[] = ['initial_grace_seconds', 'idle_percent'];
const hasType = (shown: Item) => Boolean(shown['type']);
const isUtilization = (shown: Item) => shown['type'] === 'utilization';
// The limits of core/sessions/idle_checks/checkers.py.
const MINUTE = 60;
const DAY = 86_400;
const MAX_SECONDS = 3650 * DAY;
const longest = (shown: Item) => (isUtilization(shown) ? DAY : MAX_SECONDS);
/** Whether users can keep sessions alive: the lifetime of a session is not postponed. */
const isPostponable = (shown: Item) => hasType(shown) && shown['type'] !== 'session-lifetime';

const CHECKERS: Entity = {
  name: 'idle-checkers',
  path: '/idle-checkers',
  id: 'id',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true },
    { key: 'type', isSortable: true },
    { key: 'max_seconds' },
    { key: 'thresholds', render: item => <Thresholds item={item} /> },
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
    {
      key: 'max_seconds',
      kind: 'duration',
      isRequired: true,
      isShown: hasType,
      bounds: (shown): Bounds => [MINUTE, longest(shown)],
      variant: shown => shown['type'] as string
    },
    {
      key: 'thresholds',
      kind: 'numbers',
      isRequired: true,
      isShown: isUtilization,
      boundsOf: thresholdBounds
    },
    {
      key: 'operator',
      kind: 'choice',
      choices: ['and', 'or'],
      default: 'and',
      isShown: isUtilization
    },
    {
      key: 'idle_percent',
      kind: 'number',
      default: '90',
      isShown: isUtilization,
      bounds: () => [1, 100]
    },
    {
      key: 'session_types',
      kind: 'choices',
      choices: SESSION_TYPES,
      default: 'interactive',
      isShown: hasType
    },
    {
      key: 'initial_grace_seconds',
      kind: 'duration',
      default: '0',
      isShown: hasType,
      bounds: () => [0, MAX_SECONDS]
    },
    {
      key: 'min_seconds_under_pressure',
      kind: 'duration',
      default: '0',
      isShown: isUtilization
    },
    { key: 'only_under_pressure', kind: 'switch', isShown: isUtilization },
    {
      key: 'warnings_seconds',
      kind: 'durations',
      default: '10min, 2min',
      isShown: hasType,
      bounds: () => [0, DAY]
    },
    {
      key: 'max_keep_alives',
      kind: 'number',
      default: '3',
      isShown: isPostponable,
      bounds: () => [0, 1000]
    },
    { key: 'allows_exclusion', kind: 'switch', isShown: hasType }
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
    CHANGED_BY_ROLE,
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
  isWritable: isChangeableBy,
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
    { key: 'reason', hasSentences: true, render: item => <IdleReason item={item} /> }
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
