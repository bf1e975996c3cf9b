import type { Entity } from '../../components/entities/entity';
import { EntityPage } from '../../components/entities/EntityPage';

const AUDIT_LOG: Entity = {
  name: 'audit-log',
  path: '/audit-log',
  id: 'id',
  defaultSort: '-id',
  columns: [
    { key: 'id', isSortable: true },
    { key: 'at', isSortable: true },
    { key: 'actor', isSortable: true },
    { key: 'action', isSortable: true },
    { key: 'entity' },
    {
      key: 'entity_id',
      render: ({ entity_id: id }) =>
        typeof id === 'string' ? <span className="bai-id">{id}</span> : '–'
    },
    { key: 'outcome', isSortable: true },
    { key: 'client_ip', isSortable: true },
    { key: 'domain', isSortable: true, isOptional: true },
    { key: 'details', isOptional: true }
  ],
  filters: [
    { key: 'actor__contains' },
    { key: 'action__contains' },
    { key: 'entity_id' },
    { key: 'client_ip' },
    { key: 'domain' }
  ],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false
};

/** The audit log: actor, action, object, time and address of each entry. */
export function AuditPage() {
  return <EntityPage path="/audit" title="pages.audit" entities={[AUDIT_LOG]} />;
}
