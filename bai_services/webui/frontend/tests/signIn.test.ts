import { afterEach, expect, test, vi } from 'vitest';
import { continueRequests, onSignInEnd, sendSignedIn } from '../src/data/signIn';

afterEach(() => vi.unstubAllGlobals());

const refusal = (details: object) =>
  new Response(JSON.stringify({ error: 'not-signed-in', details }), { status: 401 });

const post = (signal?: AbortSignal, body = 'a') =>
  new Request('http://server/sessions', {
    method: 'POST',
    body,
    ...(signal ? { signal } : {})
  });

/** Stub `fetch` with these responses; return the list of received bodies. */
function server(...responses: Response[]) {
  const received: string[] = [];
  vi.stubGlobal('fetch', async (request: Request) => {
    received.push(await request.text());
    return responses.shift();
  });
  return received;
}

test('a request without a sign-in is sent again with its body after the next sign-in', async () => {
  const received = server(refusal({}), new Response('created'));
  const ended = vi.fn();
  onSignInEnd(ended);
  const response = sendSignedIn(post());
  await vi.waitFor(() => expect(ended).toHaveBeenCalledOnce());
  expect(received).toEqual(['a']);
  continueRequests();
  expect(await (await response).text()).toBe('created');
  expect(received).toEqual(['a', 'a']);
});

test('a second refusal is returned', async () => {
  server(refusal({}), refusal({}));
  onSignInEnd(() => queueMicrotask(continueRequests));
  expect((await sendSignedIn(post())).status).toBe(401);
});

test('the refusal of an account is returned with its reason', async () => {
  server(refusal({ reason: 'inactive' }));
  const response = await sendSignedIn(post());
  expect(await response.json()).toMatchObject({ details: { reason: 'inactive' } });
});

test('a cancelled request no longer waits', async () => {
  const received = server(refusal({}), refusal({}), new Response('created'), new Response('late'));
  const ended = vi.fn();
  onSignInEnd(ended);
  const cancelled = new AbortController();
  const response = sendSignedIn(post(cancelled.signal));
  await vi.waitFor(() => expect(ended).toHaveBeenCalledOnce());
  const other = sendSignedIn(post(undefined, 'b'));
  await vi.waitFor(() => expect(ended).toHaveBeenCalledTimes(2));
  cancelled.abort();
  await expect(response).rejects.toThrow('abort');
  continueRequests();
  // The cancelled request would be sent first, because it waited longer.
  expect(await (await other).text()).toBe('created');
  expect(received).toEqual(['a', 'b', 'b']);
});
