const MIB = 2 ** 20;

export type Kind = 'image' | 'pdf' | 'notebook' | 'markdown' | 'table' | 'text';

// Maps, because an object inherits keys, and a file may be named `data.constructor`.
const MEDIA_TYPES = new Map([
  ['avif', 'image/avif'],
  ['bmp', 'image/bmp'],
  ['gif', 'image/gif'],
  ['ico', 'image/x-icon'],
  ['jpeg', 'image/jpeg'],
  ['jpg', 'image/jpeg'],
  ['png', 'image/png'],
  ['svg', 'image/svg+xml'],
  ['webp', 'image/webp']
]);
const KINDS = new Map<string, Kind>([
  ['csv', 'table'],
  ['ipynb', 'notebook'],
  ['markdown', 'markdown'],
  ['md', 'markdown'],
  ['pdf', 'pdf'],
  ['tsv', 'table'],
  ...Array.from(MEDIA_TYPES.keys(), extension => [extension, 'image'] as const)
]);

/** Maximum number of bytes that are read for a preview. */
export const MAX_BYTES: Record<Kind, number> = {
  image: 20 * MIB,
  pdf: 50 * MIB,
  notebook: 10 * MIB,
  markdown: MIB,
  table: MIB,
  text: MIB
};
/** Maximum size of a file that can be edited in the browser. */
export const MAX_EDIT_BYTES = MIB;

const extensionOf = (name: string) => /\.([^.]+)$/.exec(name)?.[1]?.toLowerCase() ?? '';

export const kindOf = (name: string): Kind => KINDS.get(extensionOf(name)) ?? 'text';
export const imageTypeOf = (name: string) => MEDIA_TYPES.get(extensionOf(name)) ?? '';
export const separatorOf = (name: string) => (extensionOf(name) === 'tsv' ? '\t' : ',');

/**
 * Decode the text of a file; null if it has a zero byte or is not UTF-8. `isCut`: `bytes` is only
 * the beginning of the file, and its last character can be incomplete.
 */
export function textOf(bytes: Uint8Array, isCut: boolean): string | null {
  if (bytes.includes(0)) {
    return null;
  }
  try {
    // Keep a byte order mark, so that it is not lost when the text is saved again.
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    return decoder.decode(bytes, { stream: isCut });
  } catch {
    return null;
  }
}

/** The line separator of a text: CRLF if all lines end with CRLF, else LF. */
export const lineSeparatorOf = (text: string) =>
  text.includes('\r\n') && !/(^|[^\r])\n/.test(text) ? '\r\n' : '\n';
