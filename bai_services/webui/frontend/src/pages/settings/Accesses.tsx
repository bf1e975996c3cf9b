import { useState } from 'react';
import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { EntityList } from '../../components/entities/EntityList';
import { readEntitySearch, type EntitySearch } from '../../components/entities/search';
import { ACTION_COLUMNS } from '../audit/actions';
import { EntryDetails } from '../audit/EntryDetails';

const ACCESSES: Entity = {
  name: 'audit-log',
  path: '/audit-log/mine',
  id: 'id',
  defaultSort: '-id',
  columns: [
    { key: 'at', isSortable: true, isExact: true },
    { key: 'actor', isSortable: true },
    ...ACTION_COLUMNS,
    { key: 'entity_name', isSortable: true },
    { key: 'on_behalf_of', isOptional: true },
    { key: 'outcome', isOptional: true },
    {
      key: 'details',
      render: ({ details }) => <EntryDetails details={details as Record<string, unknown>} />
    }
  ],
  filters: [
    { key: 'actor__contains' },
    { key: 'action__contains' },
    { key: 'entity_name__contains' },
    { key: 'at__gte', isDate: true }
  ],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

/** The actions of others on the user's objects. */
export function Accesses() {
  const { t } = useTranslation();
  const [search, setSearch] = useState<EntitySearch>({});
  return (
    <>
      <Typography.Paragraph type="secondary">{t('settings.accesses-help')}</Typography.Paragraph>
      <EntityList
        entity={ACCESSES}
        search={search}
        onSearch={changes => setSearch(old => readEntitySearch({ ...old, ...changes }))}
      />
    </>
  );
}
