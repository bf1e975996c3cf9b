import { afterEach, expect, test, vi } from 'vitest';
import { sendOnce } from '../src/data/singleFlight';

afterEach(() => vi.unstubAllGlobals());

const post = (body: string, signal?: AbortSignal) =>
  new Request('http://server/sessions', { method: 'POST', body, ...(signal ? { signal } : {}) });

function server() {
  const answers: ((response: Response) => void)[] = [];
  const fetched = vi.fn(() => new Promise<Response>(resolve => answers.push(resolve)));
  vi.stubGlobal('fetch', fetched);
  return { fetched, answer: (text: string) => answers.forEach(send => send(new Response(text))) };
}

test('a change is not sent while an identical one is in flight', async () => {
  const { fetched, answer } = server();
  const both = Promise.all([sendOnce(post('a')), sendOnce(post('a')), sendOnce(post('b'))]);
  await vi.waitFor(() => expect(fetched).toHaveBeenCalledTimes(2));
  answer('created');
  const texts = (await both).map(response => response.text());
  expect(await Promise.all(texts)).toEqual(['created', 'created', 'created']);

  void sendOnce(post('a'));
  await vi.waitFor(() => expect(fetched).toHaveBeenCalledTimes(3));
});

test('a cancelled change can be sent again', async () => {
  const { fetched } = server();
  const cancelled = new AbortController();
  void sendOnce(post('cancelled', cancelled.signal));
  await vi.waitFor(() => expect(fetched).toHaveBeenCalledTimes(1));
  cancelled.abort();
  void sendOnce(post('cancelled'));
  await vi.waitFor(() => expect(fetched).toHaveBeenCalledTimes(2));
});
