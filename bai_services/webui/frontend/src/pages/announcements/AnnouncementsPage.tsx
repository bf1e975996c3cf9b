import { EntityPage } from '../../components/entities/EntityPage';
import type { Entity } from '../../components/entities/entity';
import { CHANGED_BY_ROLE, isChangeableBy } from '../../components/entities/sharedObjects';

const LEVELS = ['info', 'warning', 'critical'] as const;
const AUDIENCES = ['everyone', 'domain', 'project', 'role'] as const;
const choices = (values: readonly string[]) => values.map(value => ({ value, label: value }));

const ANNOUNCEMENTS: Entity = {
  name: 'announcements',
  path: '/announcements',
  id: 'id',
  defaultSort: '-starts_at',
  columns: [
    { key: 'title', isSortable: true },
    { key: 'level', isSortable: true },
    { key: 'audience', isSortable: true },
    { key: 'target_name' },
    { key: 'starts_at', isSortable: true },
    { key: 'ends_at', isSortable: true },
    { key: 'author', isSortable: true, isOptional: true },
    CHANGED_BY_ROLE,
    { key: 'text', isOptional: true }
  ],
  filters: [
    { key: 'title__contains' },
    { key: 'level', choices: choices(LEVELS) },
    { key: 'audience', choices: choices(AUDIENCES) }
  ],
  fields: [
    { key: 'title', kind: 'text', isRequired: true },
    { key: 'text', kind: 'lines' },
    { key: 'level', kind: 'choice', choices: LEVELS, default: 'info' },
    {
      key: 'audience',
      kind: 'choice',
      choices: AUDIENCES,
      default: AUDIENCES[0],
      only: 'create'
    },
    {
      key: 'target',
      kind: 'text',
      isRequired: true,
      only: 'create',
      isShown: shown => (shown['audience'] ?? AUDIENCES[0]) !== AUDIENCES[0]
    },
    { key: 'starts_at', kind: 'time' },
    { key: 'ends_at', kind: 'time', isNullable: true }
  ],
  writers: ['admin', 'superadmin'],
  isWritable: isChangeableBy,
  canCreate: true,
  canDelete: true
};

/** Announcements: texts that users see during a period. */
export function AnnouncementsPage() {
  return (
    <EntityPage path="/announcements" title="pages.announcements" entities={[ANNOUNCEMENTS]} />
  );
}
