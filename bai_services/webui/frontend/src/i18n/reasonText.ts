import type { i18n as I18n } from 'i18next';
import { formatDuration, formatTime, withLocalTimes } from '../components/time';
import type { components } from '../data/schema';
import { isolated } from './userText';

type CodedText = components['schemas']['CodedText'];

/** A text of the server in English, and the same text as a code with values, if it has a code. */
export interface Reason {
  message: string;
  coded?: CodedText | null | undefined;
}

// `{name}`, or `{parts:SEPARATOR}`
const PLACEHOLDER = /\{(\w+)(?::([^}]*))?\}/g;

/**
 * Return a text of the server in the user's language. The result is the English text if there is no
 * code, the catalogue has no text for the code, or a value is missing.
 */
export const reasonText = (i18n: I18n, { message, coded }: Reason): string =>
  (coded && translated(i18n, coded)) ?? withLocalTimes(message, i18n.language);

// Where the words for statuses are, by the name of the value.
const STATUS_AREAS: Record<string, string | undefined> = {
  run_status: 'pipeline-runs',
  commit_status: 'custom-images',
  import_status: 'folder-imports',
  scan_status: 'image-registries'
};

/** Return the translation of a text with its parts; undefined if any of them has none. */
function translated(i18n: I18n, { code, values, parts }: CodedText): string | undefined {
  // English has no templates, because the messages of the server are in English.
  const template = i18n.t(`reasons.${code}`, { defaultValue: '' });
  const translatedParts = parts.map(part => translated(i18n, part));
  let isComplete = template !== '' && !translatedParts.includes(undefined);
  const text = template.replace(PLACEHOLDER, (_, name: string, separator = '') => {
    if (name === 'parts') {
      return translatedParts.join(separator as string);
    }
    const value = values[name];
    isComplete &&= value !== undefined;
    return value === undefined ? '' : valueText(i18n, name, value);
  });
  return isComplete ? text : undefined;
}

function valueText({ t, language }: I18n, name: string, value: string | number): string {
  if (name.endsWith('_at')) {
    return formatTime(String(value), language);
  }
  if (name.endsWith('_seconds')) {
    return formatDuration(Number(value), language);
  }
  const area = STATUS_AREAS[name];
  if (area !== undefined) {
    return t(`${area}.status-${value}`, String(value));
  }
  return name === 'status' ? t(`status.${value}`, String(value)) : isolated(String(value));
}

/** The reason for a session's status; empty: no reason. */
export const statusText = (
  i18n: I18n,
  session: { status_info: string; status_coded?: CodedText | null }
): string => reasonText(i18n, { message: session.status_info, coded: session.status_coded });
