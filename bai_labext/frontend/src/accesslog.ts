const TIME = '(?:\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z )?';
// "[I 2026-11-22 18:43:13.123 ServerApp] ": Jupyter's prefix; JupyterHub's ends with " log:192]".
const PREFIX = `^${TIME}\\[[DIWE] \\d{4}-\\d\\d-\\d\\d [\\d:.]+ [\\w.]+(?: [\\w.]+:\\d+)?\\] `;
const METHODS = 'GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|PROPFIND';
const REQUEST = new RegExp(`${PREFIX}(?:\\d{3} )?(?:${METHODS}) /`);
// Of a request that failed the server also logs the headers, as a block of JSON.
const HEADERS_BEGIN = new RegExp(`${PREFIX}\\{$`);
const HEADERS_END = new RegExp(`^${TIME}\\}$`);

/** Leave out what the session's server logs of the requests to it; `plain` drops colours. */
export function withoutAccess(lines: string[], plain: (line: string) => string): string[] {
  const kept: string[] = [];
  let isInHeaders = false;
  for (const line of lines) {
    const text = plain(line);
    if (isInHeaders) {
      isInHeaders = !HEADERS_END.test(text);
    } else if (HEADERS_BEGIN.test(text)) {
      isInHeaders = true;
    } else if (!REQUEST.test(text)) {
      kept.push(line);
    }
  }
  return kept;
}
