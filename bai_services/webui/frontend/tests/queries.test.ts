import { QueryObserver } from '@tanstack/react-query';
import { expect, test, vi } from 'vitest';
import { queries } from '../src/data/queries';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));

test('a change during the first request of a query is read afterwards', async () => {
  const responses: ((value: string) => void)[] = [];
  const observer = new QueryObserver(queries, {
    queryKey: ['entities', 'members'],
    queryFn: () => new Promise<string>(resolve => responses.push(resolve))
  });
  const stop = observer.subscribe(() => undefined);
  const refreshed = queries.invalidateQueries({ queryKey: ['entities'] });
  responses[0]?.('before the change');
  await expect.poll(() => responses.length).toBe(2);
  responses[1]?.('after the change');
  await refreshed;
  expect(observer.getCurrentResult().data).toBe('after the change');
  stop();
});
