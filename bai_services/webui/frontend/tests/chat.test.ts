import type { Root } from 'hast';
import { describe, expect, test, vi } from 'vitest';
import { textOf } from '../src/pages/chat/attachments';
import { cardOf, newCard, speedOf, storedOf, type Message } from '../src/pages/chat/cards';
import { MarkdownParser } from '../src/pages/chat/markdown/MarkdownParser';
import { chatCurlOf, chatPythonOf, pythonValue, requestOf } from '../src/pages/chat/request';

const user = (text: string, ...attachments: Message['attachments']): Message => ({
  role: 'user',
  text,
  attachments
});
const answer = (text: string, more: Partial<Message> = {}): Message => ({
  role: 'assistant',
  text,
  attachments: [],
  ...more
});
const cardWith = (...messages: Message[]) => ({ ...newCard({ model: 'm' }), messages });
const IMAGE = { name: 'a.png', kind: 'image' as const, text: '', dataUrl: 'data:image/jpeg;x' };
const URL = 'https://hub/services/bai-serve/llm/';

describe('requests', () => {
  test('contain the system prompt, the parameters and files', () => {
    const file = { name: 'a.md', kind: 'text' as const, text: '```\ncode\n```' };
    const card = { ...cardWith(user('Hi', file, IMAGE)), system: 'Be short.' };
    expect(requestOf({ ...card, parameters: { top_p: 0.5 } })).toEqual({
      model: 'm',
      messages: [
        { role: 'system', content: 'Be short.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a.md:\n````\n```\ncode\n```\n````\n\nHi' },
            { type: 'image_url', image_url: { url: IMAGE.dataUrl } }
          ]
        }
      ],
      stream: true,
      stream_options: { include_usage: true },
      top_p: 0.5
    });
  });

  test('have alternating roles, also after answers that failed', () => {
    const failed = answer('', { error: 'no replica' });
    const { messages } = requestOf(
      cardWith(user('a'), failed, user('b'), answer('c'), user('d'), failed, user('e'))
    );
    expect(messages.map(({ content }) => content)).toEqual(['b', 'c', 'e']);
  });
});

describe('examples', () => {
  test('have a placeholder for the token and for images', () => {
    const card = cardWith(user("it's", IMAGE));
    for (const text of [chatCurlOf(URL, card), chatPythonOf(URL, card)]) {
      expect(text).toContain('BAI_TOKEN');
      expect(text).toContain('base64,IMAGE');
      expect(text).not.toContain(IMAGE.dataUrl);
    }
    expect(chatCurlOf(URL, card)).toContain(`curl -N ${URL}v1/chat/completions`);
    expect(chatCurlOf(URL, card)).toContain(`it'"'"'s`);
  });

  test('have a message of the user as the last one', () => {
    const answered = cardWith(user('a'), answer('b'), user('c'), answer('d'));
    for (const [card, last] of [
      [answered, 'c'],
      [cardWith(user('a'), answer('', { error: 'no replica' })), 'a'],
      [cardWith(), 'Hello']
    ] as const) {
      expect(chatPythonOf(URL, card)).toContain(`{"role": "user", "content": "${last}"},\n    ],`);
      expect(chatCurlOf(URL, card)).toMatch(
        new RegExp(`"role": "user",\\s+"content": "${last}"\\s+}\\s+],`)
      );
    }
  });

  test('are valid Python', () => {
    expect(pythonValue({ a: [true, null, 'x"\n'], b: [] })).toBe(
      '{"a": [\n    True,\n    None,\n    "x\\"\\n",\n], "b": []}'
    );
    const text = chatPythonOf(URL, { ...cardWith(user('x')), parameters: { top_k: 3 } });
    expect(text).toContain('extra_body={"top_k": 3}');
    expect(text).toContain('stream=True');
  });
});

test('a stored card has the same messages, without images', () => {
  const card = cardWith(
    user('a\0b', IMAGE),
    answer('c', { inputTokens: 1, outputTokens: 2, totalMillis: 2.6, isStopped: true })
  );
  const stored = storedOf(card);
  expect(JSON.stringify(stored)).not.toContain('data:');
  expect(stored.messages[1]?.total_ms).toBe(3);
  const { messages } = cardOf(stored);
  expect(messages[0]?.text).toBe('ab');
  expect(messages[0]?.attachments).toEqual([{ name: 'a.png', kind: 'image', text: '' }]);
  expect(messages[1]).toMatchObject({ outputTokens: 2, totalMillis: 3, isStopped: true });
});

test('the speed is that of the tokens after the first one', () => {
  const message = answer('x', { outputTokens: 11, firstTokenMillis: 500, totalMillis: 1500 });
  expect(speedOf(message)).toBe(10);
  expect(speedOf({ ...message, outputTokens: 1 })).toBeUndefined();
  expect(speedOf(answer('x'))).toBeUndefined();
});

test('only texts in UTF-8 are attached', () => {
  const bytes = (...values: number[]) => new Uint8Array(values).buffer;
  expect(textOf(bytes(0xed, 0x95, 0x9c))).toBe('한');
  expect(() => textOf(bytes(0xff, 0xfe))).toThrow('file-no-text');
  expect(() => textOf(bytes(0x61, 0x00))).toThrow('file-no-text');
});

describe('the Markdown parser', () => {
  const TREE: Root = { type: 'root', children: [] };
  class Worker {
    static made: Worker[] = [];
    texts: string[] = [];
    isTerminated = false;
    onmessage: ((event: MessageEvent<Root | null>) => void) | null = null;
    onerror = null;
    constructor() {
      Worker.made.push(this);
    }
    postMessage(text: string) {
      this.texts.push(text);
      if (text !== 'hostile') {
        queueMicrotask(() => this.onmessage?.({ data: TREE } as MessageEvent<Root>));
      }
    }
    terminate() {
      this.isTerminated = true;
    }
  }

  test('replaces a worker that takes too long, and skips aborted texts', async () => {
    vi.useFakeTimers();
    const parser = new MarkdownParser(() => new Worker());
    const { signal } = new AbortController();
    const results = [
      parser.parse('a', signal),
      parser.parse('hostile', signal),
      parser.parse('gone', AbortSignal.abort()),
      parser.parse('b', signal)
    ];
    await vi.advanceTimersByTimeAsync(6000);
    expect(await Promise.all(results)).toEqual([TREE, null, null, TREE]);
    expect(Worker.made.map(({ texts }) => texts)).toEqual([['a', 'hostile'], ['b']]);
    expect(Worker.made.map(worker => worker.isTerminated)).toEqual([true, false]);
    vi.useRealTimers();
  });
});
