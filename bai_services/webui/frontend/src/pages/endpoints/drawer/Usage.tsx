import { useState } from 'react';
import i18next from 'i18next';
import type { Entity } from '../../../components/entities/entity';
import { EntityList } from '../../../components/entities/EntityList';
import { REFRESH_MILLIS } from '../../../data/serving/endpoints';

const usageOf = (key: string): Entity => ({
  name: 'endpoint-usage',
  path: `/endpoints/${key}/usage`,
  id: 'id',
  defaultSort: '-day',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'day', isSortable: true, render: item => String(item['day']).slice(0, 10) },
    {
      key: 'token',
      isSortable: true,
      render: item => String(item['token']) || i18next.t('endpoint-usage.chat-page')
    },
    { key: 'requests', isSortable: true },
    { key: 'input_tokens', isSortable: true },
    { key: 'output_tokens', isSortable: true }
  ],
  filters: [],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
});

/** Requests and tokens by day and by the token of the client. */
export function Usage({ endpoint }: { endpoint: string }) {
  const [entity] = useState(() => usageOf(endpoint));
  // The address of the page has the state of the list of tokens.
  const [search, setSearch] = useState({});
  return (
    <EntityList
      entity={entity}
      search={search}
      onSearch={changes => setSearch({ ...search, ...changes })}
    />
  );
}
