import { quoted } from '../endpoints/form';
import type { Attachment, Card, Message } from './cards';

type Content =
  string | ({ type: 'text'; text: string } | { type: 'image_url'; image_url: { url: string } })[];

interface SentMessage {
  role: 'system' | 'user' | 'assistant';
  content: Content;
}

/** A text file as a code block whose fence is longer than any in the file. */
function fileText({ name, text }: Attachment): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map(run => run.length));
  const fence = '`'.repeat(longest + 1);
  return `${name}:\n${fence}\n${text}\n${fence}`;
}

function contentOf(message: Message): Content {
  const files = message.attachments.filter(({ kind }) => kind === 'text').map(fileText);
  const text = [...files, message.text].join('\n\n');
  const images = message.attachments.flatMap(({ dataUrl }) =>
    dataUrl ? [{ type: 'image_url' as const, image_url: { url: dataUrl } }] : []
  );
  return images.length > 0 ? [{ type: 'text', text }, ...images] : text;
}

/**
 * The messages of a card that have an answer, their answers, and the last message of the user.
 * Models require that the roles alternate, so other messages without an answer are omitted.
 */
function sentMessages(messages: readonly Message[]): Message[] {
  const sent: Message[] = [];
  for (const message of messages) {
    const previous = sent.at(-1);
    if (message.role === 'user') {
      if (previous?.role === 'user') {
        sent.pop();
      }
      sent.push(message);
    } else if (message.text !== '' && previous?.role === 'user') {
      sent.push(message);
    }
  }
  return sent;
}

/** The body of the request for the next answer of a card. */
export function requestOf({ model, system, parameters, messages }: Card) {
  const sent: SentMessage[] = sentMessages(messages).map(message => ({
    role: message.role,
    content: message.role === 'user' ? contentOf(message) : message.text
  }));
  return {
    model,
    messages: [...(system.trim() ? [{ role: 'system' as const, content: system }] : []), ...sent],
    stream: true,
    stream_options: { include_usage: true },
    ...parameters
  };
}

/** The message of an example without a conversation. */
const GREETING: Message = { role: 'user', text: 'Hello', attachments: [] };

/**
 * The request for the last answer, or for a greeting, as an example. Images are replaced by a
 * placeholder.
 */
function exampleOf(card: Card): Record<string, unknown> {
  // Servers reject a request without messages, and some reject one that ends with an answer.
  const end = card.messages.findLastIndex(({ role }) => role === 'user') + 1;
  const messages = end > 0 ? card.messages.slice(0, end) : [GREETING];
  const request: Record<string, unknown> = requestOf({
    ...card,
    messages: messages.map(message => ({
      ...message,
      attachments: message.attachments.map(each =>
        each.dataUrl ? { ...each, dataUrl: 'data:image/png;base64,IMAGE' } : each
      )
    }))
  });
  delete request['stream_options'];
  return request;
}

/** The URL of an API below an endpoint. */
const apiOf = (url: string, { basePath }: Card) => url + basePath.replace(/^\/+|\/+$/g, '');

/** A shell command that sends the conversation; the token is in the variable `BAI_TOKEN`. */
export const chatCurlOf = (url: string, card: Card) =>
  [
    `curl -N ${quoted(`${apiOf(url, card)}/chat/completions`)}`,
    '  -H "Authorization: Bearer $BAI_TOKEN"',
    '  -H "Content-Type: application/json"',
    `  -d ${quoted(JSON.stringify(exampleOf(card), null, 2))}`
  ].join(' \\\n');

/** A JSON value as a Python expression. */
export function pythonValue(value: unknown, indent = ''): string {
  const inner = `${indent}    `;
  if (Array.isArray(value)) {
    const items = value.map(item => `${inner}${pythonValue(item, inner)},\n`);
    return items.length > 0 ? `[\n${items.join('')}${indent}]` : '[]';
  }
  if (value !== null && typeof value === 'object') {
    const items = Object.entries(value).map(([key, item]) => {
      return `${JSON.stringify(key)}: ${pythonValue(item, indent)}`;
    });
    return `{${items.join(', ')}}`;
  }
  if (typeof value === 'boolean') {
    return value ? 'True' : 'False';
  }
  return value === null ? 'None' : JSON.stringify(value);
}

/** A Python program that sends the conversation with the package `openai`. */
export function chatPythonOf(url: string, card: Card): string {
  // Pass `top_k` in `extra_body`, because the package has no such parameter.
  const { top_k, ...known } = exampleOf(card);
  const values = {
    ...known,
    ...(top_k !== undefined && { extra_body: { top_k } })
  };
  return [
    'import os',
    '',
    'from openai import OpenAI',
    '',
    `client = OpenAI(base_url=${JSON.stringify(apiOf(url, card))}, api_key=os.environ["BAI_TOKEN"])`,
    'stream = client.chat.completions.create(',
    ...Object.entries(values).map(([name, value]) => `    ${name}=${pythonValue(value, '    ')},`),
    ')',
    'for chunk in stream:',
    '    if chunk.choices:',
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
    ''
  ].join('\n');
}
