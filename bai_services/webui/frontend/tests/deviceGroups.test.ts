import { expect, test } from 'vitest';
import type { Session } from '../src/data/sessions/sessions';
import { deviceGroups } from '../src/pages/sessions/list/deviceGroups';

const device = (id: string, model: string, share: string, enforcement = 'none') =>
  ({ id, model, share, enforcement, kernel: 'main1' }) as Session['devices'][number];

test('whole devices of a model are counted, shares are not', () => {
  const groups = deviceGroups([
    device('a', 'H100', '1'),
    device('b', 'H100', '1'),
    device('c', 'H100', '1', 'hardware'),
    device('d', 'A100', '1'),
    device('e', 'A100', '0.5'),
    device('f', 'A100', '0.5')
  ]);
  expect(groups.map(({ model, count, share }) => [model, count, share])).toEqual([
    ['H100', 2, null],
    ['H100', 1, null],
    ['A100', 1, null],
    ['A100', 1, '0.5'],
    ['A100', 1, '0.5']
  ]);
});
