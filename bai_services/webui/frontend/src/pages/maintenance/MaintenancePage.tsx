import { EntityPage } from '../../components/entities/EntityPage';
import type { Entity } from '../../components/entities/entity';
import { MaintenanceSummary } from './MaintenanceSummary';

const SCOPES = ['all', 'group', 'agent'] as const;
const MODES = ['no-starts', 'drain', 'read-only'] as const;
const choices = (values: readonly string[]) => values.map(value => ({ value, label: value }));

const MAINTENANCES: Entity = {
  name: 'maintenances',
  path: '/maintenances',
  id: 'id',
  defaultSort: '-starts_at',
  columns: [
    { key: 'reason', isSortable: true, hasSentences: true },
    { key: 'scope', isSortable: true },
    { key: 'target', isSortable: true },
    { key: 'mode', isSortable: true },
    { key: 'starts_at', isSortable: true },
    { key: 'ends_at', isSortable: true },
    { key: 'author', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'reason__contains' },
    { key: 'scope', choices: choices(SCOPES) },
    { key: 'mode', choices: choices(MODES) },
    { key: 'target' }
  ],
  fields: [
    { key: 'reason', kind: 'text', isRequired: true },
    { key: 'scope', kind: 'choice', choices: SCOPES, default: SCOPES[0], only: 'create' },
    {
      key: 'target',
      kind: 'text',
      isRequired: true,
      only: 'create',
      isShown: shown => (shown['scope'] ?? SCOPES[0]) !== SCOPES[0]
    },
    { key: 'mode', kind: 'choice', choices: MODES, default: 'drain', only: 'create' },
    { key: 'starts_at', kind: 'time' },
    { key: 'ends_at', kind: 'time', isNullable: true, days: [1, 2, 7] }
  ],
  Prefill: MaintenanceSummary,
  writers: ['superadmin'],
  canCreate: true,
  canDelete: true
};

/** Maintenance: periods in which sessions do not start, or users cannot change anything. */
export function MaintenancePage() {
  return <EntityPage path="/maintenance" title="pages.maintenance" entities={[MAINTENANCES]} />;
}
