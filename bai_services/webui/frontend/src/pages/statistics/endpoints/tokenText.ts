import i18next from 'i18next';

/** The name of a token in reports: "" stands for the chat page, "*" for requests without a token. */
export const tokenText = (token: string) =>
  token === ''
    ? i18next.t('endpoint-usage.chat-page')
    : token === '*'
      ? i18next.t('endpoint-usage.no-token')
      : token;

/** The text for a token of an endpoint, from `ENDPOINT/TOKEN`. */
export function endpointTokenText(name: string): string {
  const [endpoint = '', token = ''] = name.split('/');
  return `${endpoint} · ${tokenText(token)}`;
}
