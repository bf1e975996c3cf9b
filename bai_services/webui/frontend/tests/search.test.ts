import { describe, expect, test, vi } from 'vitest';

vi.mock('../src/data/client', () => ({ api: {}, unwrap: () => undefined }));

const router = await import('@tanstack/react-router');
const { filtersOf, readSessionsSearch } = await import('../src/pages/sessions/search');
const { countText, parseSearchValue, validated } =
  await import('../src/components/list/listSearch');

test.each(['123456', '12e456', '1e5', '007', 'lab'])('the name %s in a URL is a text', name => {
  const { parseSearchWith } = router;
  const search = parseSearchWith(parseSearchValue)(`?name=${name}&page=3`);
  expect(readSessionsSearch(search)).toEqual({ name, page: 3 });
});

describe('readSessionsSearch', () => {
  test('keeps valid state', () => {
    const state = { tab: 'pending', name: 'lab', sort: '-name', page: 3, size: 50, session: 'id' };
    expect(readSessionsSearch(state)).toEqual(state);
  });

  test('ignores invalid values', () => {
    const state = { tab: 'nothing', name: {}, sort: 'A B', page: -1, size: 7, other: 'x' };
    expect(readSessionsSearch(state)).toEqual({});
  });
});

test('filtersOf combines the filters of the tab, the name and the other filters', () => {
  expect(filtersOf({ tab: 'pending', name: 'lab' })).toEqual({
    status__in: 'PENDING,SCHEDULED,SUSPENDED',
    name__contains: 'lab'
  });
  expect(filtersOf({ tab: 'cluster', filters: { owner: 'ann' } })).toEqual({
    cluster_size__gt: '1',
    owner: 'ann'
  });
  expect(filtersOf({})).toEqual({});
});

test.each([
  [1000, 20, '1000'],
  [1001, 20, '1000+'],
  // On later pages, the total is exact up to the end of the page.
  [1015, 1015, '1015'],
  [1021, 1020, '1020+']
])('a total of %i with the last row %i is shown as %s', (total, last, text) => {
  expect(countText(total, last)).toBe(text);
});

test('values of a URL that are not valid are undefined for the page', () => {
  expect(validated(readSessionsSearch)({ tab: 'waiting', page: 3, x: '1' })).toStrictEqual({
    tab: undefined,
    page: 3,
    x: undefined
  });
});
