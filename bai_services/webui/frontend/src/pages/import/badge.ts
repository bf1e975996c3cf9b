import type { ImportSource } from '../../data/imports';

/** The address of the page with the source of an import. */
export function linkOf(source: ImportSource & { urlpath?: string }, address: string): string {
  const given = Object.entries(source).filter(([, value]) => value !== '');
  // Escape parentheses, which would end the address of a link in Markdown.
  const query = new URLSearchParams(given).toString().replace(/\(/g, '%28').replace(/\)/g, '%29');
  return `${address}?${query}`;
}

export const htmlBadge = (link: string, text: string) =>
  `<a href="${escaped(link)}">${escaped(text)}</a>`;

export const markdownBadge = (link: string, text: string) =>
  `[${text.replace(/[[\]\\]/g, '\\$&')}](${link})`;

const escaped = (text: string) =>
  text.replace(/[&<>"]/g, character => `&#${character.charCodeAt(0)};`);
