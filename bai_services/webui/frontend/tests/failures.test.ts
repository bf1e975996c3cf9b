import i18next from 'i18next';
import { beforeAll, expect, test, vi } from 'vitest';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));
vi.stubGlobal('document', { querySelector: () => null });

const { failureOf } = await import('../src/data/client');
const { currentConnection, reportFailure, reportSuccess } = await import('../src/data/connection');

beforeAll(async () => {
  const errors = { unreachable: 'no server', internal: 'failed' };
  await i18next.init({ lng: 'ko', resources: { ko: { translation: { errors } } } });
});

const HTML = '<html>';
const API = { error: 'internal', message: 'internal error', details: {} };

test.each([
  ['the proxy gets no response', 502, HTML, 'no server', 'lost'],
  ['the proxy has no target', 503, HTML, 'no server', 'lost'],
  ['the proxy waits in vain', 504, HTML, 'no server', 'lost'],
  ['the server fails', 500, HTML, 'failed', 'online'],
  ['the API fails', 500, API, 'failed', 'online'],
  ['the database is down', 503, { error: 'unavailable', message: 'wait' }, 'wait', 'lost']
])('if %s (%i), the message and the connection tell it', (_, status, body, message, state) => {
  const failure = failureOf(new Response(null, { status }), body);
  expect(failure.message).toBe(message);
  reportSuccess();
  reportFailure(failure);
  expect(currentConnection().state).toBe(state);
});
