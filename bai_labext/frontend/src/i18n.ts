import type { Api } from './api';

/** Return the text of a key with each placeholder `{name}` replaced; the key if it has no text. */
export type Translate = (key: string, values?: Record<string, string | number>) => string;

/** Load the texts in JupyterLab's language, or in the Hub's language if JupyterLab's is English. */
export async function loadTexts(api: Api, languageCode: string): Promise<Translate> {
  const chosen = languageCode.split(/[-_]/)[0] ?? '';
  let texts: Record<string, string> = {};
  try {
    texts = (await api.texts(chosen === 'en' ? '' : chosen)).texts;
  } catch (error) {
    console.warn('bai-labext: no texts', error);
  }
  return (key, values = {}) =>
    (texts[key] ?? key).replace(/\{(\w+)\}/g, (placeholder, name: string) =>
      String(values[name] ?? placeholder)
    );
}
