import { useState } from 'react';
import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { EntityList } from '../../components/entities/EntityList';
import { readEntitySearch, type EntitySearch } from '../../components/entities/search';
import type { Item } from '../../data/entities';

const STATUSES = ['pending', 'delivered', 'given-up'];
const REFRESH_MILLIS = 15_000;

const deliveriesOf = (key: string): Entity => ({
  name: 'webhook-deliveries',
  path: `/webhooks/${key}/deliveries`,
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'created_at', isSortable: true },
    { key: 'event', isSortable: true },
    { key: 'status', isSortable: true },
    { key: 'attempts' },
    { key: 'last_error', hasSentences: true },
    { key: 'next_at', isOptional: true },
    { key: 'finished_at', isOptional: true },
    { key: 'text', isOptional: true },
    { key: 'id', isOptional: true }
  ],
  filters: [{ key: 'status', choices: STATUSES.map(value => ({ value, label: value })) }],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
});

/** The deliveries to a webhook in the last seven days. */
export function Deliveries({ webhook }: { webhook: Item }) {
  const { t } = useTranslation();
  const [entity] = useState(() => deliveriesOf(String(webhook['id'])));
  const [search, setSearch] = useState<EntitySearch>({});
  return (
    <>
      <Typography.Title level={5}>{t('webhook-deliveries.title')}</Typography.Title>
      <EntityList
        entity={entity}
        search={search}
        onSearch={changes => setSearch(old => readEntitySearch({ ...old, ...changes }))}
      />
    </>
  );
}
