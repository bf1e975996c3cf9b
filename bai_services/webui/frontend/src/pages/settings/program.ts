import type { TFunction } from 'i18next';

const UNKNOWN = 'unknown browser';

/** The browser and system of a sign-in, such as `Firefox on Linux`, in the user's language. */
export function programText(t: TFunction, program: string): string {
  const [browser = '', system] = program.split(' on ');
  const name = browser === '' || browser === UNKNOWN ? t('settings.unknown-browser') : browser;
  return system ? t('settings.browser-on-system', { browser: name, system }) : name;
}
