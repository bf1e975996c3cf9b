import { expect, test } from 'vitest';
import { MAX_LINE_LENGTH, parseLine } from '../src/components/ansi';

const parsed = (line: string) =>
  parseLine(line, {}).spans.map(({ text, style }) => [text, style] as const);

test.each([
  ['plain', [['plain', '']]],
  [
    'a \u001b[31mred\u001b[0m b',
    [
      ['a ', ''],
      ['red', 'ansi-red'],
      [' b', '']
    ]
  ],
  ['\u001b[1;92mok', [['ok', 'ansi-green ansi-bold']]],
  ['\u001b[41;3mx\u001b[23m', [['x', 'ansi-italic']]],
  ['\u001b[38;5;196mx', [['x', 'ansi-red']]],
  ['\u001b[38;2;0;0;255mx', [['x', 'ansi-blue']]],
  ['\u001b[48;5;196;4mx', [['x', 'ansi-underline']]],
  ['10 %\r50 %\r100 %\r', [['100 %', '']]],
  ['\u001b]0;title\u0007\u001b[2K\u001b[?25lx\u0000', [['x', '']]],
  ['<b>\u001b[', [['<b>', '']]]
])('parseLine splits %j into styled spans', (line, expected) => {
  expect(parsed(line)).toEqual(expected);
});

test('a style continues on the next line', () => {
  const { after } = parseLine('\u001b[33mfirst', {});
  expect(parseLine('second', after).spans).toEqual([{ text: 'second', style: 'ansi-yellow' }]);
});

test('the length of a line and its number of styles are limited', () => {
  const spans = parseLine('\u001b[31mx\u001b[32my'.repeat(100_000), {}).spans;
  expect(spans.length).toBeLessThanOrEqual(500);
  expect(spans.map(span => span.text).join('').length).toBeLessThanOrEqual(MAX_LINE_LENGTH);
});
