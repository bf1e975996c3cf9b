import { duration, inLocalTime } from './format.ts';
import type { Translate } from './i18n';
import type { CodedText } from './types';

// `{name}`, or `{parts:SEPARATOR}`
const PLACEHOLDER = /\{(\w+)(?::([^}]*))?\}/g;

/**
 * Return a text of the manager in the user's language. The result is the English message if the
 * catalogue has no text for the code, or if a value is missing.
 */
export const reasonText = (t: Translate, message: string, coded: CodedText | null): string =>
  (coded && translated(t, coded)) ?? inLocalTime(message);

function translated(t: Translate, { code, values, parts }: CodedText): string | undefined {
  const key = `reasons.${code}`;
  const template = t(key);
  const translatedParts = parts.map(part => translated(t, part));
  let isComplete = template !== key && !translatedParts.includes(undefined);
  const text = template.replace(PLACEHOLDER, (_, name: string, separator = '') => {
    if (name === 'parts') {
      return translatedParts.join(separator as string);
    }
    const value = values[name];
    isComplete &&= value !== undefined;
    return value === undefined ? '' : valueText(t, name, value);
  });
  return isComplete ? text : undefined;
}

function valueText(t: Translate, name: string, value: string | number): string {
  if (name.endsWith('_seconds')) {
    return duration(Number(value));
  }
  if (name.endsWith('_at')) {
    return inLocalTime(String(value));
  }
  return name === 'status' ? t(String(value)) : String(value);
}
