import i18next, { type i18n as I18n } from 'i18next';
import { expect, test } from 'vitest';
import jaReasons from '../../../i18n/ja/reasons.json';
import koReasons from '../../../i18n/ko/reasons.json';
import thReasons from '../../../i18n/th/reasons.json';
import en from '../src/i18n/en';
import ja from '../src/i18n/ja';
import ko from '../src/i18n/ko';
import th from '../src/i18n/th';
import { reasonText, type Reason } from '../src/i18n/reasonText';

async function translator(lng: string): Promise<I18n> {
  const instance = i18next.createInstance();
  const resources = {
    en,
    ko: { ...ko, reasons: koReasons },
    ja: { ...ja, reasons: jaReasons },
    th: { ...th, reasons: thReasons }
  } as unknown as Record<string, Record<string, object>>;
  await instance.init({
    lng,
    resources: Object.fromEntries(
      Object.entries(resources).map(([name, texts]) => [name, { translation: texts }])
    )
  });
  return instance;
}

const text = (code: string, values = {}, ...parts: object[]) =>
  ({ code, values, parts }) as NonNullable<Reason['coded']>;

const SHORTAGES: Reason = {
  message: 'resource group default: cpu=6 requested, but at most 2 is free on one agent; …',
  coded: text(
    'shortages',
    { group: 'default' },
    text('shortage', { slot: 'cpu', asked: '6', available: '2' }),
    text('shortage', { slot: 'mem', asked: '8g', available: '4g' })
  )
};

test('the reasons of a pending session are in Korean', async () => {
  const korean = await translator('ko');
  expect(reasonText(korean, SHORTAGES)).toBe(
    '자원 그룹 default: cpu=6을(를) 요청했지만 한 에이전트의 여유는 최대 2입니다; ' +
      'mem=8g을(를) 요청했지만 한 에이전트의 여유는 최대 4g입니다'
  );
  const dependencies = text(
    'dependencies-unmet',
    {},
    text('session-in-status', { name: 'load', status: 'RUNNING' }),
    text('session-in-status', { name: 'clean', status: 'PENDING' })
  );
  expect(reasonText(korean, { message: 'waits for …', coded: dependencies })).toBe(
    `다음 세션이 성공하기를 기다리는 중: load (${korean.t('status.RUNNING')}), clean (${korean.t('status.PENDING')})`
  );
});

test('times are local times', async () => {
  const coded = text('start-time-ahead', { starts_at: '2030-01-31T09:00:00+00:00' });
  const shown = reasonText(await translator('ja'), { message: 'does not start …', coded });
  expect(shown).toMatch(/^2030\/01\/31 .* より前には開始しません$/);
});

test('English shows the message of the server, with local times', async () => {
  const english = await translator('en');
  expect(reasonText(english, SHORTAGES)).toBe(SHORTAGES.message);
  const at = reasonText(english, { message: 'does not start before 2030-01-31T09:00:00+00:00' });
  expect(at).toMatch(/^does not start before Jan \d+, 2030/);
});

test.each([
  ['no code', undefined],
  ['null', null],
  ['an unknown code', text('of-a-newer-server')],
  ['a missing value', text('group-inactive')],
  ['an unknown part', text('shortages', { group: 'default' }, text('of-a-newer-server'))]
])('the English message is shown for %s', async (_, coded) => {
  const reason: Reason = { message: 'the message', coded };
  expect(reasonText(await translator('th'), reason)).toBe('the message');
});

test('placeholders and markup in a name are shown as text, hidden characters as codes', async () => {
  const coded = text('group-inactive', { group: '{group} {{x}} $t(why.pending) \u202e' });
  expect(reasonText(await translator('ko'), { message: '', coded })).toBe(
    '{group} {{x}} $t(why.pending) [U+202E] 자원 그룹이 비활성 상태입니다'
  );
});

test('a message of the server shows hidden characters as codes', async () => {
  const shown = reasonText(await translator('en'), { message: 'failed: \u202eexe.txt' });
  expect(shown).toBe('failed: [U+202E]exe.txt');
});
