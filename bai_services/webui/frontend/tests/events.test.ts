import { QueryObserver } from '@tanstack/react-query';
import { expect, test, vi } from 'vitest';
import { followChanges } from '../src/data/events';
import { queries } from '../src/data/queries';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));

class Stream {
  static last: Stream | undefined;
  onopen: () => void = () => undefined;

  constructor() {
    Stream.last = this;
  }

  addEventListener() {
    // The test sends no events.
  }
}

test('the opened stream repeats only requests that began before', async () => {
  vi.useFakeTimers();
  vi.stubGlobal('EventSource', Stream);
  vi.stubGlobal('window', Object.assign(globalThis, { addEventListener: () => undefined }));
  vi.stubGlobal('document', { hidden: false, addEventListener: () => undefined });
  vi.stubGlobal('navigator', { onLine: true });
  const read: string[] = [];
  const observe = (key: string) =>
    new QueryObserver(queries, {
      queryKey: ['sessions', key],
      queryFn: () => {
        read.push(key);
        return Promise.resolve(key);
      }
    }).subscribe(() => undefined);

  followChanges();
  const stops = [observe('before')];
  await vi.advanceTimersByTimeAsync(10);
  Stream.last?.onopen();
  await vi.advanceTimersByTimeAsync(10);
  stops.push(observe('after'));
  await vi.advanceTimersByTimeAsync(1000);
  expect(read).toEqual(['before', 'before', 'after']);
  stops.forEach(stop => stop());
  queries.clear();
  vi.useRealTimers();
});
