import { useState } from 'react';
import type { Entity } from '../../../components/entities/entity';
import { EntityList } from '../../../components/entities/EntityList';
import { ACTION_COLUMNS } from '../../audit/actions';
import { EntryDetails } from '../../audit/EntryDetails';
import type { EndpointTabProps } from './EndpointDrawer';

const actionsOn = (key: string): Entity => ({
  name: 'audit-log',
  path: `/endpoints/${key}/audit-log`,
  id: 'id',
  defaultSort: '-id',
  columns: [
    { key: 'at', isSortable: true },
    { key: 'actor', isSortable: true },
    ...ACTION_COLUMNS,
    { key: 'outcome', isSortable: true },
    {
      key: 'details',
      render: ({ details }) => <EntryDetails details={details as Record<string, unknown>} />
    }
  ],
  filters: [{ key: 'actor__contains' }, { key: 'action__contains' }],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
});

/** The actions on an endpoint and who took them. */
export function ActionLog({ endpoint, search, onChange }: EndpointTabProps) {
  const [entity] = useState(() => actionsOn(endpoint.id));
  return (
    <EntityList
      entity={entity}
      search={search.list ?? {}}
      onSearch={changes => onChange({ list: { ...search.list, ...changes } })}
    />
  );
}
