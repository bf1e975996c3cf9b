import type { StoredCard } from '../../data/serving/chat/chats';

// The limits of core/serving/chats.py and api/serving/chat_bodies.py.
export const MAX_CARDS = 4;
export const MAX_ATTACHMENTS = 8;
/** Maximum number of characters of a message or a text file. */
export const MAX_TEXT = 200_000;
export const MAX_SYSTEM_PROMPT = 32_000;
const MAX_MESSAGES = 400;
const MAX_NAME = 250;

export interface Attachment {
  name: string;
  kind: 'text' | 'image';
  /** The content of a text file. */
  text: string;
  /** The content of an image; only images of this page load have it, because it is not stored. */
  dataUrl?: string;
}

export interface Message {
  role: 'user' | 'assistant';
  text: string;
  attachments: Attachment[];
  inputTokens?: number;
  outputTokens?: number;
  /** Time from the request to the first part of the answer, and to its end. */
  firstTokenMillis?: number;
  totalMillis?: number;
  isStopped?: boolean;
  /** Why the answer is incomplete. */
  error?: string;
}

export interface Parameters {
  max_tokens?: number;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  frequency_penalty?: number;
  presence_penalty?: number;
}

/** A conversation with one model. */
export interface Card {
  /** Unique on this page. */
  key: string;
  /** The name of the endpoint. */
  endpoint: string;
  model: string;
  basePath: string;
  system: string;
  parameters: Parameters;
  messages: readonly Message[];
  isRunning: boolean;
}

export const DEFAULT_PATH = 'v1';
let lastKey = 0;

/** A new card without messages; `like`: a card whose settings it gets. */
export function newCard(like?: Partial<Card>): Card {
  lastKey += 1;
  return {
    endpoint: '',
    model: '',
    basePath: DEFAULT_PATH,
    system: '',
    parameters: {},
    ...like,
    key: `card-${lastKey}`,
    messages: [],
    isRunning: false
  };
}

/** Remove what the API does not accept. */
const clean = (text: string, maximum: number) =>
  text
    .replaceAll('\0', '')
    .slice(0, maximum)
    .replace(/\p{Surrogate}/gu, '\ufffd');

/** A time or a number of tokens as the API accepts it. */
const whole = (value: number | undefined) =>
  value === undefined ? null : Math.min(Math.max(0, Math.round(value)), 2 ** 31 - 1);

/** Convert a card for storage: only the last messages, and no content of images. */
export const storedOf = (card: Card): StoredCard => ({
  endpoint: card.endpoint,
  base_path: card.basePath,
  model: clean(card.model, MAX_NAME),
  system: clean(card.system, MAX_SYSTEM_PROMPT),
  parameters: { ...NO_PARAMETERS, ...card.parameters },
  messages: card.messages.slice(-MAX_MESSAGES).map(message => ({
    role: message.role,
    text: clean(message.text, MAX_TEXT),
    attachments: message.attachments.slice(0, MAX_ATTACHMENTS).map(({ name, kind, text }) => ({
      name: clean(name, MAX_NAME),
      kind,
      text: clean(text, MAX_TEXT)
    })),
    input_tokens: whole(message.inputTokens),
    output_tokens: whole(message.outputTokens),
    first_token_ms: whole(message.firstTokenMillis),
    total_ms: whole(message.totalMillis),
    is_stopped: message.isStopped === true,
    error: clean(message.error ?? '', MAX_NAME)
  }))
});

const NO_PARAMETERS = {
  max_tokens: null,
  temperature: null,
  top_p: null,
  top_k: null,
  frequency_penalty: null,
  presence_penalty: null
};

/** Remove the values that are null or undefined. */
export const given = <T extends object>(values: T) =>
  Object.fromEntries(
    Object.entries(values).filter(([, value]) => value !== null && value !== undefined)
  ) as { [K in keyof T]?: NonNullable<T[K]> };

/** Convert a stored card for the page. */
export const cardOf = (stored: StoredCard): Card => ({
  ...newCard(),
  endpoint: stored.endpoint,
  basePath: stored.base_path,
  model: stored.model,
  system: stored.system,
  parameters: given(stored.parameters),
  messages: stored.messages.map(message => ({
    role: message.role,
    text: message.text,
    attachments: message.attachments,
    ...given({
      inputTokens: message.input_tokens,
      outputTokens: message.output_tokens,
      firstTokenMillis: message.first_token_ms,
      totalMillis: message.total_ms
    }),
    isStopped: message.is_stopped,
    error: message.error
  }))
});

/** Output tokens per second after the first one; undefined if it cannot be computed. */
export function speedOf({ outputTokens, firstTokenMillis, totalMillis }: Message) {
  if (outputTokens === undefined || firstTokenMillis === undefined || totalMillis === undefined) {
    return undefined;
  }
  const millis = totalMillis - firstTokenMillis;
  return outputTokens > 1 && millis > 0 ? ((outputTokens - 1) * 1000) / millis : undefined;
}
