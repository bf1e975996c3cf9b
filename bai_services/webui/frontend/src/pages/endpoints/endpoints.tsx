import { Button, Flex, Typography } from 'antd';
import { getRouteApi } from '@tanstack/react-router';
import type { Entity } from '../../components/entities/entity';
import { Tag } from '../../components/Tag';
import { UserText } from '../../components/UserText';
import type { Item } from '../../data/entities';
import type { Endpoint } from '../../data/serving/endpoints';
import { EndpointStatus } from './EndpointStatus';
import { readEndpointsSearch } from './search';

const LIST_REFRESH_MILLIS = 10_000;

const endpointOf = (item: Item) => item as unknown as Endpoint;

/** The absolute URL of an endpoint. */
export const urlOf = ({ url }: Endpoint) => new URL(url, location.href).href;

/** The list of endpoints; `EndpointsPage` contains the form and the drawer. */
export const ENDPOINTS: Entity = {
  name: 'endpoints',
  path: '/endpoints',
  id: 'id',
  defaultSort: 'name',
  refreshMillis: LIST_REFRESH_MILLIS,
  columns: [
    { key: 'name', isSortable: true, render: item => <OpenEndpoint endpoint={endpointOf(item)} /> },
    { key: 'status', render: item => <EndpointStatus endpoint={endpointOf(item)} /> },
    { key: 'replicas', isSortable: true, render: item => replicasText(endpointOf(item)) },
    { key: 'revision', render: item => revisionText(endpointOf(item)) },
    { key: 'requests', isSortable: true },
    { key: 'errors', isSortable: true },
    { key: 'url', render: item => <EndpointUrl endpoint={endpointOf(item)} /> },
    { key: 'is_public', isSortable: true },
    { key: 'owner', isSortable: true, isOptional: true },
    { key: 'project', isSortable: true, isOptional: true },
    { key: 'tags', isOptional: true, render: item => <Tags tags={endpointOf(item).tags} /> },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'name__contains' },
    { key: 'tags__contains' },
    { key: 'is_paused', isFlag: true },
    { key: 'is_public', isFlag: true },
    { key: 'project__contains' },
    { key: 'owner__contains' }
  ],
  fields: [],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

export const Tags = ({ tags }: { tags: readonly string[] }) =>
  tags.length === 0 ? (
    '–'
  ) : (
    <Flex wrap gap={4}>
      {tags.map(tag => (
        <Tag key={tag}>
          <UserText text={tag} />
        </Tag>
      ))}
    </Flex>
  );

/** Ready and desired replicas. */
export const replicasText = ({ ready_replicas, replicas }: Endpoint) =>
  `${ready_replicas} / ${replicas}`;

/** The revision that serves, and the one that replaces it during a rollout. */
export const revisionText = ({ active_revision, target_revision }: Endpoint) =>
  active_revision === null || active_revision === target_revision
    ? String(target_revision)
    : `${active_revision} → ${target_revision}`;

const route = getRouteApi('/endpoints');

function OpenEndpoint({ endpoint }: { endpoint: Endpoint }) {
  const navigate = route.useNavigate();
  const open = () =>
    void navigate({ search: old => readEndpointsSearch({ ...old, item: endpoint.id }) });
  return (
    <Button type="link" style={{ padding: 0, height: 'auto' }} onClick={open}>
      <UserText text={endpoint.name} />
    </Button>
  );
}

/** The path of the endpoint; the button copies the absolute URL. */
const EndpointUrl = ({ endpoint }: { endpoint: Endpoint }) => (
  <Typography.Text
    copyable={{ text: urlOf(endpoint) }}
    className="bai-nowrap"
    title={urlOf(endpoint)}
  >
    {endpoint.url}
  </Typography.Text>
);
