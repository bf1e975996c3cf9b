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

test('an error with a code is shown in the language of the user', async () => {
  const texts = {
    reasons: {
      'run-not-cancellable': 'Status {run_status}: no',
      'line-problem': 'L{line}: {parts}'
    },
    'pipeline-runs': { 'status-failed': 'fehlgeschlagen' }
  };
  await i18next.init({ lng: 'ko', resources: { ko: { translation: texts } } });
  const inner = { code: 'run-not-cancellable', values: { run_status: 'failed' }, parts: [] };
  const coded = { code: 'line-problem', values: { line: 3 }, parts: [inner] };
  const body = { error: 'conflict', message: 'English', details: {} };
  const response = new Response(null, { status: 409 });
  expect(failureOf(response, { ...body, coded }).message).toBe('L3: Status fehlgeschlagen: no');
  expect(failureOf(response, { ...body, coded: { ...coded, code: 'newer' } }).message).toBe(
    'English'
  );
  expect(failureOf(response, { ...body, coded: null }).message).toBe('English');
});
