/** Parse CSV or TSV text (RFC 4180). Cells are trimmed and empty rows are omitted.
 *
 * @param maxRows maximum number of rows; later rows are not parsed
 * @throws SyntaxError with the number of the row that cannot be read
 */
export function parseCsv(
  text: string,
  separator: ',' | '\t' = ',',
  maxRows = Infinity
): { number: number; cells: string[] }[] {
  const source = text.replace(/^\uFEFF/, '');
  const rows: { number: number; cells: string[] }[] = [];
  // A quoted cell, or a cell without quotes, followed by a separator, a line break or the end.
  const cell = new RegExp(
    `(?:"((?:[^"]|"")*)"|(?!")([^${separator}\\r\\n]*))(${separator}|\\r\\n|\\n|\\r|$)`,
    'y'
  );
  let cells: string[] = [];
  let number = 1;
  while (rows.length < maxRows && (cell.lastIndex < source.length || cells.length > 0)) {
    const match = cell.exec(source);
    if (match === null) {
      throw new SyntaxError(String(number));
    }
    const [, quoted, plain, end] = match;
    cells.push((quoted?.replaceAll('""', '"') ?? plain ?? '').trim());
    if (end !== separator) {
      if (cells.some(one => one !== '')) {
        rows.push({ number, cells });
      }
      cells = [];
      number += 1;
    }
  }
  return rows;
}
