import { expect, test, vi } from 'vitest';
import { chatEndpointsQuery, modelsQuery } from '../src/data/serving/chat/chats';
import type { Endpoint } from '../src/data/serving/endpoints';
import { queries } from '../src/data/queries';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));
vi.mock('../src/data/serving/chat/calls', () => ({ readModels: () => Promise.resolve(['m']) }));

test.each([
  [0, true],
  [1, false]
])('models of %i ready replicas: the endpoints are read again: %s', async (ready, isRead) => {
  const endpoint = { id: `e${ready}`, path: '/e/', ready_replicas: ready } as Endpoint;
  const { queryKey } = chatEndpointsQuery;
  queries.setQueryData(queryKey, [endpoint]);
  expect(await queries.query(modelsQuery(endpoint, 'v1'))).toEqual(['m']);
  expect(queries.getQueryState(queryKey)?.isInvalidated).toBe(isRead);
});
