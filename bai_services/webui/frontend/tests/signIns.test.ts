import i18next from 'i18next';
import { expect, test } from 'vitest';
import { noticeText } from '../src/i18n/noticeText';
import { programText } from '../src/pages/settings/program';
import english from '../../../i18n/en/device_notices.json';
import korean from '../../../i18n/ko/device_notices.json';
import koSettings from '../src/i18n/ko/settings.json';

await i18next.init({
  lng: 'ko',
  interpolation: { escapeValue: false },
  resources: { ko: { translation: { deviceNotices: korean, settings: koSettings } } }
});

test('browsers of sign-ins are named in the language of the user', () => {
  const { t } = i18next;
  expect(programText(t, 'Firefox on Linux')).toBe('Firefox, Linux');
  expect(programText(t, 'unknown browser')).toBe(koSettings['unknown-browser']);
  expect(programText(t, '')).toBe(koSettings['unknown-browser']);
});

test('notices about devices are translated, other notices are unchanged', () => {
  expect(Object.values(english).map(notice => noticeText(i18next, notice))).toEqual(
    Object.values(korean)
  );
  expect(noticeText(i18next, 'Folder a was not mounted.')).toBe('Folder a was not mounted.');
});
