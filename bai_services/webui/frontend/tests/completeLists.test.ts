import { expect, test, vi } from 'vitest';
import { ownKeypairsQuery } from '../src/data/accounts/account';
import { MAX_LIMIT } from '../src/data/allItems';
import { announcementsQuery } from '../src/data/announcements';
import {
  groupNamesQuery as pullGroupsQuery,
  imageNamesQuery
} from '../src/data/cluster/imagePulls';
import {
  grantsQuery,
  hostsQuery,
  ownQuotasQuery,
  pendingInvitationsQuery,
  receivedInvitationsQuery
} from '../src/data/folders/folders';
import { groupNamesQuery } from '../src/data/scheduling/schedule';
import { sharesQuery } from '../src/data/sessions/apps';
import { placeableAgentsQuery, templatesQuery } from '../src/data/sessions/launch';

const TOTAL = MAX_LIMIT + 1;
const DEFAULT_LIMIT = 50;

interface Query {
  limit?: number;
  offset?: number;
  is_active?: string;
}

interface Request {
  params?: { query?: Query };
}

const queries = vi.hoisted(() => [] as Query[]);

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));
// Every list of the server has one item more than the longest page.
vi.mock('../src/data/client', () => ({
  api: {
    GET: (_path: string, { params }: Request) => {
      const query = params?.query ?? {};
      const { limit = DEFAULT_LIMIT, offset = 0 } = query;
      queries.push(query);
      const numbers = Array.from({ length: TOTAL }, (_, number) => number);
      const items = numbers.slice(offset, offset + limit).map(number => ({ id: number }));
      return Promise.resolve({ items, total: TOTAL });
    }
  },
  unwrap: (response: unknown) => response
}));

test.each([
  ['grants of a folder', grantsQuery('id')],
  ['pending invitations to a folder', pendingInvitationsQuery('id')],
  ['received invitations', receivedInvitationsQuery('id')],
  ['storage hosts', hostsQuery],
  ['storage quotas', ownQuotasQuery],
  ['shares of a session', sharesQuery('id')],
  ['agents of a resource group', placeableAgentsQuery('group')],
  ['templates', templatesQuery],
  ['resource groups', groupNamesQuery],
  ['keypairs of a user', ownKeypairsQuery('user')],
  ['current announcements', announcementsQuery]
])('the query of the %s reads all items', async (_name, { queryFn }) => {
  const read = queryFn as unknown as (context: object) => Promise<unknown[]>;
  expect(await read({})).toHaveLength(TOTAL);
});

test.each([
  ['images', imageNamesQuery],
  ['resource groups', pullGroupsQuery]
])('the dialog for pulls offers only active %s', async (_name, { queryFn }) => {
  queries.length = 0;
  await (queryFn as unknown as (context: object) => Promise<unknown[]>)({});
  expect(queries.length).toBeGreaterThan(1);
  expect(queries.every(query => query.is_active === 'true')).toBe(true);
});
