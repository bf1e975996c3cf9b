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

// The translated reasons and errors of the server are large, and the first page may not need them.
// Those of English are in the responses.
const REASONS: Record<Language, (() => Promise<{ default: ResourceKey }>) | null> = {
  en: null,
  ko: () => import('../../../../i18n/ko/reasons.json'),
  ja: () => import('../../../../i18n/ja/reasons.json'),
  th: () => import('../../../../i18n/th/reasons.json')
};

export const languageOf = (name: string): Language =>
  Object.hasOwn(LANGUAGES, name) ? (name as Language) : 'en';

export async function loadLanguage(name: string): Promise<void> {
  const language = languageOf(name);
  // Without the reasons, the English texts of the server remain.
  loadReasons(language).catch(() => undefined);
  const { default: texts } = await TEXTS[language]();
  // Merge the texts, because the reasons may have arrived before.
  i18next.addResourceBundle(language, 'translation', texts, true);
  await i18next.changeLanguage(language);
  document.documentElement.lang = language;
}

/** Add the reasons when they arrive; until then, the English texts of the server are shown. */
async function loadReasons(language: Language): Promise<void> {
  const load = REASONS[language];
  if (load !== null && !i18next.exists('reasons', { lng: language, returnObjects: true })) {
    const { default: reasons } = await load();
    i18next.addResourceBundle(language, 'translation', { reasons }, true);
  }
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
    // Components show the reasons when they arrive.
    react: { bindI18nStore: 'added' },
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
