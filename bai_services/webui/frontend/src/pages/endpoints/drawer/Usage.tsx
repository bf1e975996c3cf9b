import { useState } from 'react';
import type { Entity } from '../../../components/entities/entity';
import { EntityList } from '../../../components/entities/EntityList';
import { REFRESH_MILLIS } from '../../../data/serving/endpoints';
import { RequestsChart } from '../../statistics/endpoints/RequestsChart';
import { tokenText } from '../../statistics/endpoints/tokenText';
import { periodOf } from '../../statistics/search';
import type { EndpointTabProps } from './EndpointDrawer';

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
      render: item => tokenText(String(item['token']))
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

/** A chart of the requests of the last days; requests and model tokens by day and access token. */
export function Usage({ endpoint, search, onChange }: EndpointTabProps) {
  const [entity] = useState(() => usageOf(endpoint.id));
  const [{ since }] = useState(() => periodOf({}, new Date()));
  return (
    <>
      <RequestsChart
        request={{ since, every: 'day', by: 'total', endpoint: endpoint.id, isOwn: false }}
      />
      <EntityList
        entity={entity}
        search={search.list ?? {}}
        onSearch={changes => onChange({ list: { ...search.list, ...changes } })}
      />
    </>
  );
}
