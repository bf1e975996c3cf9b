import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import i18next from 'i18next';
import { createElement, Fragment, type ReactElement } from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { initReactI18next } from 'react-i18next';
import { beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import en from '../src/i18n/en';

vi.stubGlobal('document', { querySelector: () => ({ content: '{"api":"/api","xsrfToken":""}' }) });
vi.stubGlobal('window', Object.assign(globalThis, { addEventListener: () => undefined }));

const { whyQuery } = await import('../src/data/sessions/sessions');
const { SessionFacts } = await import('../src/pages/sessions/drawer/SessionFacts');
const { WhyPending } = await import('../src/pages/sessions/drawer/WhyPending');
type Session = Parameters<typeof SessionFacts>[0]['session'];

beforeAll(() =>
  i18next.use(initReactI18next).init({
    lng: 'en',
    resources: { en: { translation: en } },
    interpolation: { escapeValue: false }
  })
);

const REASON = 'needs cuda.shares=2, at most 1 free on one agent';

const session = {
  id: '5f0c',
  name: 'lab',
  type: 'interactive',
  status: 'PENDING',
  status_info: REASON,
  status_coded: null,
  requested: { cpu: '1' },
  resource_group: 'default',
  domain: 'default',
  project: 'default',
  owner: 'user',
  image: 'python',
  architecture: 'x86_64',
  priority: 10,
  job_priority: 0,
  restart_count: 0,
  cluster_size: 1,
  is_preemptible: true,
  devices: [],
  mounts: [],
  dependencies: [],
  notices: [],
  progress: {},
  created_at: '2026-01-01T00:00:00Z',
  terminated_at: null,
  scheduled_at: null,
  preemption: null,
  result: 'UNDEFINED',
  exit_code: null
} as unknown as Session;

/** The drawer's notice and facts of a session, as HTML. */
function shown(client: QueryClient, values: object = {}): string {
  const shownSession = { ...session, ...values };
  const parts: ReactElement[] = [
    createElement(WhyPending, { session: shownSession, key: 'why' }),
    createElement(SessionFacts, { session: shownSession, key: 'facts' })
  ];
  return renderToStaticMarkup(
    createElement(QueryClientProvider, { client }, createElement(Fragment, null, parts))
  );
}

test('the reason of a pending session is shown once, with a position that names its queue', () => {
  const client = new QueryClient();
  client.setQueryData(whyQuery(session.id).queryKey, {
    id: session.id,
    name: session.name,
    status: 'PENDING',
    position: 2,
    resource_group: 'default',
    priority: 10,
    checks: [],
    sooner: [],
    overflow: [],
    estimate: { starts_at: null, certainty: 'unknown' }
  } as never);
  const html = shown(client);
  expect(html.split(REASON)).toHaveLength(2);
  expect(html).toContain('Position 2 in resource group default (all users)');
});

const running = {
  status: 'RUNNING',
  status_info: '',
  idle_checks: [],
  idle_ends_at: null,
  ends_at: null
};
const budgetStop = {
  ends_at: '2026-01-01T00:05:00Z',
  reason: 'budget: the budget of project ml is spent',
  coded: null
};

test.each([
  ['only a budget', {}],
  ['a budget before other limits', { ends_at: '2026-01-01T00:30:00Z' }]
])('%s that ends the session is shown with a countdown', (_, values) => {
  vi.useFakeTimers({ now: Date.parse('2026-01-01T00:00:00Z') });
  onTestFinished(() => void vi.useRealTimers());
  const html = shown(new QueryClient(), { ...running, ...values, end_rule: budgetStop });
  expect(html).toContain('Ends in');
  expect(html).toContain('>5 min<');
  expect(html).toContain(budgetStop.reason);
});

test('a limit that ends a session first is shown once', () => {
  const { ends_at, ...text } = budgetStop;
  const lifetime = { ...text, ends_at, reason: 'lifetime: at most 5min' };
  const html = shown(new QueryClient(), { ...running, ends_at, end_rule: lifetime });
  expect(html).toContain('Help: Lifetime');
  expect(html).not.toContain(lifetime.reason);
  expect(shown(new QueryClient(), { ...running, end_rule: null })).not.toContain('Ends in');
});
