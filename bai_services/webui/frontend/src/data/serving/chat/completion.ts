/** Parser of responses of the OpenAI API. They are untrusted, so each field is checked. */

const MAX_TOKENS = 2 ** 31 - 1;
const MAX_MESSAGE = 250;
const MAX_MODELS = 500;
const MAX_MODEL = 255;

/** Content of one event of a stream, or of a whole answer. */
export interface AnswerPart {
  text: string;
  inputTokens?: number;
  outputTokens?: number;
  /** The message of an error that the server has sent in the stream. */
  error?: string;
  /** Whether the stream has ended. */
  isLast?: boolean;
  /** Whether the answer is complete; the stream may continue with the usage. */
  isComplete?: boolean;
}

type Fields = Record<string, unknown>;

const fieldsOf = (value: unknown): Fields =>
  value !== null && typeof value === 'object' ? (value as Fields) : {};

const textOf = (value: unknown) => (typeof value === 'string' ? value : '');

const countOf = (value: unknown) =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_TOKENS
    ? value
    : undefined;

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Read one event of a stream, or the whole answer of a server that does not stream. */
export function answerPartOf(data: string): AnswerPart {
  if (data.trim() === '[DONE]') {
    return { text: '', isLast: true, isComplete: true };
  }
  const fields = fieldsOf(parsed(data));
  const { error } = fields;
  if (error !== undefined && error !== null) {
    return { text: '', error: errorOf(data) ?? '' };
  }
  const [choice] = Array.isArray(fields['choices']) ? (fields['choices'] as unknown[]) : [];
  const { delta, message, text, finish_reason: reason } = fieldsOf(choice);
  const usage = fieldsOf(fields['usage']);
  const input = countOf(usage['prompt_tokens']);
  const output = countOf(usage['completion_tokens']);
  return {
    text:
      textOf(fieldsOf(delta)['content']) || textOf(fieldsOf(message)['content']) || textOf(text),
    ...(input !== undefined && { inputTokens: input }),
    ...(output !== undefined && { outputTokens: output }),
    ...(textOf(reason) !== '' && { isComplete: true })
  };
}

/** The message of an error response of a gateway or a model server, or undefined. */
export function errorOf(body: string): string | undefined {
  const { error, message, detail } = fieldsOf(parsed(body));
  const found =
    textOf(fieldsOf(error)['message']) || textOf(message) || textOf(error) || textOf(detail);
  return found ? found.slice(0, MAX_MESSAGE) : undefined;
}

/** The names of the models in the response of `/v1/models`; undefined if it is not such a list. */
export function modelsOf(body: string): string[] | undefined {
  const { data } = fieldsOf(parsed(body));
  if (!Array.isArray(data)) {
    return undefined;
  }
  const names = (data as unknown[])
    .map(model => textOf(fieldsOf(model)['id']))
    .filter(name => name !== '' && name.length <= MAX_MODEL);
  return [...new Set(names)].slice(0, MAX_MODELS);
}
