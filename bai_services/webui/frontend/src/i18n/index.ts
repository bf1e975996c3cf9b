import i18next, { type ResourceKey } from 'i18next';
import { initReactI18next } from 'react-i18next';
import { config } from '../config';
import { isolated } from './userText';

/** Native names of the languages. */
export const LANGUAGES = { en: 'English', ko: '한국어', ja: '日本語', th: 'ไทย' } as const;
export type Language = keyof typeof LANGUAGES;

const COOKIE = 'bai_lang';
const COOKIE_SECONDS = 365 * 24 * 3600;

// Only the texts of the language in use are loaded.
const TEXTS: Record<Language, () => Promise<{ default: ResourceKey }>> = {
  en: () => import('./en'),
  ko: () => import('./ko'),
  ja: () => import('./ja'),
  th: () => import('./th')
};

export const languageOf = (name: string): Language =>
  Object.hasOwn(LANGUAGES, name) ? (name as Language) : 'en';

export async function loadLanguage(name: string): Promise<void> {
  const language = languageOf(name);
  const { default: texts } = await TEXTS[language]();
  i18next.addResourceBundle(language, 'translation', texts);
  await i18next.changeLanguage(language);
  document.documentElement.lang = language;
}

// Notifies the web UI in the browser's other tabs of the chosen language.
const otherTabs = new BroadcastChannel(COOKIE);

/** Switch the language of the web UI in all tabs, and of the Hub's pages, which read the cookie. */
export async function chooseLanguage(language: Language): Promise<void> {
  document.cookie = `${COOKIE}=${language}; path=${new URL(config.hub, location.href).pathname.replace(/hub\/$/, '')}; max-age=${COOKIE_SECONDS}; samesite=lax`;
  otherTabs.postMessage(language);
  await loadLanguage(language);
}

export async function startI18n(): Promise<void> {
  await i18next.use(initReactI18next).init({
    lng: config.language,
    resources: {},
    // React escapes markup; `isolated` shows hidden characters and isolates right-to-left text.
    interpolation: { escape: isolated },
    returnNull: false,
    saveMissing: true,
    missingKeyHandler: (_languages, _namespace, key, fallback) => {
      // Report only keys without a fallback: some technical terms have no text and are shown as
      // they are.
      if (fallback === key) {
        console.error(`missing text: ${key}`);
      }
    }
  });
  await loadLanguage(config.language);
  otherTabs.onmessage = ({ data }) => void loadLanguage(String(data));
}
