import i18next from 'i18next';
import { expect, test, vi } from 'vitest';
import { failureOf } from '../src/data/client';

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));

test('the message about an outdated form is translated', async () => {
  const resources = { ko: { translation: { errors: { outdated: 'translated' } } } };
  await i18next.init({ lng: 'ko', resources });
  const body = { error: 'conflict', message: 'English', details: { version: 3 } };
  const response = new Response(null, { status: 409 });
  expect(failureOf(response, body).message).toBe('translated');
  expect(failureOf(response, { ...body, details: {} }).message).toBe('English');
});
