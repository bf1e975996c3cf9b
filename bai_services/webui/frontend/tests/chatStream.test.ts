import { describe, expect, test } from 'vitest';
import { answerPartOf, errorOf, modelsOf } from '../src/data/serving/chat/completion';
import { EventParser, MAX_EVENT_CHARACTERS } from '../src/data/serving/chat/eventStream';

const STREAM = [
  ': a comment\r\n',
  'event: message\r\ndata: {"choices":[{"delta":{"content":"안녕"}}]}\r\n\r\n',
  'data: first\ndata: second\n\n',
  'data:without a space\r\r',
  'data\n\n',
  'id: 7\n\n',
  'data: [DONE]\n\n',
  'data: incomplete'
].join('');
const EVENTS = [
  '{"choices":[{"delta":{"content":"안녕"}}]}',
  'first\nsecond',
  'without a space',
  '',
  '[DONE]'
];

describe('the parser of server-sent events', () => {
  test('finds the same events, however the stream is divided', () => {
    for (let size = 1; size <= STREAM.length; size += 1) {
      const parser = new EventParser();
      const found: string[] = [];
      for (let begin = 0; begin < STREAM.length; begin += size) {
        found.push(...parser.push(STREAM.slice(begin, begin + size)), ...parser.push(''));
      }
      expect(found, `pieces of ${size}`).toEqual(EVENTS);
    }
  });

  test('rejects an event with too many empty lines', () => {
    expect(() => new EventParser().push('data:\n'.repeat(MAX_EVENT_CHARACTERS + 1))).toThrow(
      RangeError
    );
  });

  test('rejects an event that is too large', () => {
    const long = 'x'.repeat(MAX_EVENT_CHARACTERS / 2);
    expect(() => new EventParser().push(`data: ${long}${long}${long}`)).toThrow(RangeError);
    const parser = new EventParser();
    parser.push(`data: ${long}\n`);
    parser.push(`data: ${'x'.repeat(1000)}\n`);
    expect(() => parser.push(`data: ${long}\n`)).toThrow(RangeError);
  });
});

describe('answers of a model server', () => {
  test('have text, usage and an end', () => {
    const delta = '{"choices":[{"delta":{"content":"a"}}],"usage":null}';
    expect(answerPartOf(delta)).toEqual({ text: 'a' });
    const usage = '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5}}';
    expect(answerPartOf(usage)).toEqual({ text: '', inputTokens: 3, outputTokens: 5 });
    const whole = '{"choices":[{"message":{"role":"assistant","content":"all"}}]}';
    expect(answerPartOf(whole)).toEqual({ text: 'all' });
    expect(answerPartOf(' [DONE] ')).toEqual({ text: '', isLast: true, isComplete: true });
    const end = '{"choices":[{"delta":{},"finish_reason":"stop"}]}';
    expect(answerPartOf(end)).toEqual({ text: '', isComplete: true });
    expect(answerPartOf('{"error":{"message":"too long"}}')).toEqual({
      text: '',
      error: 'too long'
    });
  });

  test.each([
    'null',
    '[]',
    '"text"',
    '{',
    '{"choices":{}}',
    '{"choices":[null]}',
    '{"choices":[{"delta":{"content":{"a":1}}}],"usage":{"prompt_tokens":-1}}',
    '{"usage":{"completion_tokens":1e99}}'
  ])('with other content have no text: %s', data => {
    expect(answerPartOf(data)).toEqual({ text: '' });
  });

  test('have errors in several formats', () => {
    expect(errorOf('{"code":"unavailable","message":"no replica"}')).toBe('no replica');
    expect(errorOf('{"error":"model not found"}')).toBe('model not found');
    expect(errorOf('{"detail":"Not Found"}')).toBe('Not Found');
    expect(errorOf('<html>')).toBeUndefined();
    expect(errorOf(JSON.stringify({ message: 'x'.repeat(9999) }))).toHaveLength(250);
  });

  test('list models', () => {
    const data = [{ id: 'a' }, { id: 'a' }, { id: 1 }, null, { id: 'x'.repeat(300) }, { id: 'b' }];
    expect(modelsOf(JSON.stringify({ data }))).toEqual(['a', 'b']);
    expect(modelsOf('{"data":{}}')).toBeUndefined();
    expect(modelsOf('<html>')).toBeUndefined();
  });
});
