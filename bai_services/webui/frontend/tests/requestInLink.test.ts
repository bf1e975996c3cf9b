import { expect, test, vi } from 'vitest';

vi.mock('../src/data/client', () => ({ api: {}, unwrap: () => undefined }));

const { requestInLink } = await import('../src/pages/start/requestInLink');

const ORIGIN = 'https://hub.example.com';
const parse = (text: string) => ({ request: JSON.parse(text.slice(1)) as unknown });
const read = (link: string) => requestInLink(link, ORIGIN, '/services/bai', parse);

test('the request in a link to the launcher has no secret values', () => {
  const request = { type: 'batch', environ: { KEY: 'x' }, secret_environ: ['KEY'] };
  const text = encodeURI(JSON.stringify(request));
  const plain = requestInLink(
    `${ORIGIN}/services/bai/launch?${text}`,
    ORIGIN,
    '/services/bai',
    query => parse(decodeURI(query))
  );
  expect(plain?.request).toEqual({ ...request, environ: { KEY: '' } });
});

test.each([
  '',
  'no link',
  'javascript:alert(1)',
  'https://evil.example.com/services/bai/launch?{}',
  `${ORIGIN}/services/bai/sessions?{}`,
  `${ORIGIN}/services/bai/launch?7`
])('%s is not a link to the launcher', link => {
  expect(read(link)).toBeUndefined();
});
