import { Tooltip } from 'antd';
import type { Entity } from '../../components/entities/entity';
import { UserText } from '../../components/UserText';
import { EntityPage } from '../../components/entities/EntityPage';
import { ACTION_COLUMNS, choicesOf } from './actions';
import { EntryDetails } from './EntryDetails';
import { VerifyChain } from './VerifyChain';

const AUDIT_LOG: Entity = {
  name: 'audit-log',
  path: '/audit-log',
  id: 'id',
  defaultSort: '-id',
  columns: [
    { key: 'id', isSortable: true },
    { key: 'at', isSortable: true, isExact: true },
    { key: 'actor', isSortable: true },
    ...ACTION_COLUMNS,
    { key: 'entity' },
    {
      key: 'entity_name',
      isSortable: true,
      render: ({ entity_name: name, entity_id: id }) => (
        <Tooltip title={id === name ? undefined : String(id)}>
          <span className="bai-id">
            <UserText text={String(name)} />
          </span>
        </Tooltip>
      )
    },
    { key: 'entity_id', isOptional: true },
    { key: 'outcome', isSortable: true },
    { key: 'client_ip', isSortable: true },
    { key: 'domain', isSortable: true, isOptional: true },
    { key: 'on_behalf_of', isOptional: true },
    { key: 'position', isSortable: true, isOptional: true },
    {
      key: 'details',
      isOptional: true,
      render: ({ details }) => <EntryDetails details={details as Record<string, unknown>} />
    }
  ],
  filters: [
    { key: 'actor__contains' },
    { key: 'action__contains' },
    { key: 'entity_name__contains' },
    { key: 'entity_id' },
    { key: 'entity', choices: choicesOf('entity') },
    { key: 'outcome', choices: choicesOf('outcome') },
    { key: 'on_behalf_of' },
    { key: 'client_ip' },
    { key: 'at__gte', isDate: true },
    { key: 'at__lt', isDate: true },
    { key: 'domain' }
  ],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false
};

/** The audit log: actor, action, object, time and address of each entry. */
export function AuditPage() {
  return (
    <EntityPage path="/audit" title="pages.audit" entities={[AUDIT_LOG]} tools={<VerifyChain />} />
  );
}
