import { expect, test } from 'vitest';
import en from '../src/i18n/en';
import ja from '../src/i18n/ja';
import ko from '../src/i18n/ko';
import th from '../src/i18n/th';

type Texts = Record<string, Record<string, string>>;

// Korean, Japanese and Thai have one form for all numbers, so they need no `_one` texts.
const isSingular = (key: string) => key.endsWith('_one');

function keysOf(texts: Texts): string[] {
  return Object.entries(texts)
    .flatMap(([area, entries]) => Object.keys(entries).map(key => `${area}.${key}`))
    .filter(key => !isSingular(key))
    .sort();
}

const placeholders = (text: string) => (text.match(/{{\w+}}/g) ?? []).sort();

test.each([
  ['ko', ko],
  ['ja', ja],
  ['th', th]
])('%s has every text of English, with the same placeholders', (_, all) => {
  // Reasons and notices have English texts only outside; tests/test_i18n.py compares them.
  const { deviceNotices, ...texts } = all as Texts;
  expect(deviceNotices).toBeDefined();
  expect(keysOf(texts)).toEqual(keysOf(en));
  for (const [area, entries] of Object.entries(texts)) {
    for (const [key, text] of Object.entries(entries)) {
      const english = (en as Texts)[area]?.[key] ?? '';
      expect(placeholders(text), `${area}.${key}`).toEqual(placeholders(english));
    }
  }
});
