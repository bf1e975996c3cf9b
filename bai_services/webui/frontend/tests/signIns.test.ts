import i18next from 'i18next';
import { expect, test } from 'vitest';
import { noticeText } from '../src/i18n/noticeText';
import { programText } from '../src/pages/settings/program';
import enSessions from '../src/i18n/en/sessions.json';
import koSessions from '../src/i18n/ko/sessions.json';
import koSettings from '../src/i18n/ko/settings.json';

await i18next.init({
  lng: 'ko',
  interpolation: { escapeValue: false },
  resources: { ko: { translation: { sessions: koSessions, settings: koSettings } } }
});

test('browsers of sign-ins are named in the language of the user', () => {
  const { t } = i18next;
  expect(programText(t, 'Firefox on Linux')).toBe('Firefox, Linux');
  expect(programText(t, 'unknown browser')).toBe(koSettings['unknown-browser']);
  expect(programText(t, '')).toBe(koSettings['unknown-browser']);
});

test('the notice about simulated GPUs is translated, other notices are unchanged', () => {
  expect(noticeText(i18next, enSessions['simulated-gpus'])).toBe(koSessions['simulated-gpus']);
  expect(noticeText(i18next, 'Folder a was not mounted.')).toBe('Folder a was not mounted.');
});
