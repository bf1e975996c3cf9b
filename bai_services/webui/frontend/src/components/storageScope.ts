import type { TFunction } from 'i18next';
import type { QuotaScope } from '../data/folders/folders';
import { formatBytes } from './bytes';

/** The title of a quota scope: "project NAME", or "My folders" for the user's own scope. */
export const scopeTitle = (t: TFunction, { project }: QuotaScope) =>
  project ? t('data.project', { name: project }) : t('data.yours');

/** The usage and the limit of a quota scope as text, for example "9 MiB of 10 MiB". */
export function usageText(t: TFunction, language: string, scope: QuotaScope): string {
  const { used_bytes: used, limit_bytes: limit } = scope;
  const usedText = used === null ? t('data.not-counted') : formatBytes(used, language);
  return limit === null
    ? t('data.no-limit', { used: usedText })
    : t('data.used-of', { used: usedText, limit: formatBytes(limit, language) });
}
