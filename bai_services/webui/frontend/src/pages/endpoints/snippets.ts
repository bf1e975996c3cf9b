/** Variants whose servers have an OpenAI-compatible API. */
const OPENAI: readonly string[] = [
  'vllm',
  'sglang',
  'huggingface-tgi',
  'nim',
  'llama-cpp',
  'modular-max'
];

export interface Called {
  /** Absolute URL of the endpoint, with a slash at the end. */
  url: string;
  variant: string;
  isPublic: boolean;
}

export const hasOpenAiApi = (variant: string) => OPENAI.includes(variant);

/** A shell command that calls the endpoint; the token is in the variable `BAI_TOKEN`. */
export function curlOf({ url, variant, isPublic }: Called): string {
  const header = isPublic ? [] : ['  -H "Authorization: Bearer $BAI_TOKEN"'];
  const lines = hasOpenAiApi(variant)
    ? [
        `curl -N ${url}v1/chat/completions`,
        ...header,
        '  -H "Content-Type: application/json"',
        `  -d '{"model": "MODEL", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'`
      ]
    : [`curl ${url}`, ...header];
  return lines.join(' \\\n');
}

/** A Python program that calls the endpoint with the package `openai`. */
export function pythonOf({ url, isPublic }: Called): string {
  const key = isPublic ? '"none"' : 'os.environ["BAI_TOKEN"]';
  return [
    ...(isPublic ? [] : ['import os', '']),
    'from openai import OpenAI',
    '',
    `client = OpenAI(base_url="${url}v1", api_key=${key})`,
    'model = client.models.list().data[0].id',
    'stream = client.chat.completions.create(',
    '    model=model,',
    '    messages=[{"role": "user", "content": "Hello"}],',
    '    stream=True,',
    ')',
    'for chunk in stream:',
    '    if chunk.choices:',
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)'
  ].join('\n');
}
