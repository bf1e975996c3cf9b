import { expect, test } from 'vitest';
import { parseLine } from '../src/components/ansi';
import { isolated, visible } from '../src/i18n/userText';

test('hidden characters are shown as codes', () => {
  expect(visible('a\u202etxt.exe')).toBe('a[U+202E]txt.exe');
  expect(visible('ad\u200bmin\u0007')).toBe('ad[U+200B]min[U+0007]');
  expect(visible('\ufeffx\u0085\u2028')).toBe('[U+FEFF]x[U+0085][U+2028]');
});

test('readable text is unchanged', () => {
  const texts = [
    '김철수',
    'สมชาย',
    'שלום',
    'می\u200cخواهم',
    '👩\u200d🔬',
    'ë',
    '<b>&amp;</b>',
    'a\n\tb'
  ];
  expect(texts.map(visible)).toEqual(texts);
});

test('in a sentence, only right-to-left text is isolated', () => {
  expect(isolated('data')).toBe('data');
  expect(isolated('שלום')).toBe('\u2068שלום\u2069');
  expect(isolated('a\u202eb')).toBe('a[U+202E]b');
});

test('log lines show bidirectional controls as codes, and drop escape sequences and other control characters', () => {
  const { spans } = parseLine('ok\u202e \u001b[31mred\u009b2J\u0085', {});
  expect(spans).toEqual([
    { text: 'ok[U+202E] ', style: '' },
    { text: 'red2J', style: 'ansi-red' }
  ]);
});
