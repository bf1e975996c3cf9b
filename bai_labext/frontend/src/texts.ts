import type { Api } from './api';

/** Gives the text of a key; `{name}` is filled in. A key that is missing shows itself. */
export type Translate = (key: string, values?: Record<string, string | number>) => string;

/** Fetch the panel's texts: JupyterLab's language where one is set, else that of the hub's pages. */
export async function loadTexts(api: Api, languageCode: string): Promise<Translate> {
  const chosen = languageCode.split(/[-_]/)[0] ?? '';
  let texts: Record<string, string> = {};
  try {
    texts = (await api.texts(chosen === 'en' ? '' : chosen)).texts;
  } catch (error) {
    console.warn('bai-labext: no texts', error);
  }
  return (key, values = {}) =>
    (texts[key] ?? key).replace(/\{(\w+)\}/g, (place, name: string) =>
      String(values[name] ?? place)
    );
}
