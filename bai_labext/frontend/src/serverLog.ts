const TIME = '(?:\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z )?';
const STAMP = '\\d{4}-\\d\\d-\\d\\d [\\d:.]+';
const SOURCE = '(?: [\\w.]+:\\d+)?';
// Jupyter's prefix is "[I 2026-11-22 18:43:13.123 ServerApp] ". In JupyterHub's prefix, " log:192"
// precedes the closing bracket.
const PREFIX = `^${TIME}\\[[DIWEC] ${STAMP} [\\w.]+${SOURCE}\\] `;
const METHODS = 'GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|PROPFIND';
const REQUEST = new RegExp(`${PREFIX}(?:\\d{3} )?(?:${METHODS}) /`);
// After a failed request, the server logs the headers as a block of JSON.
const HEADERS_BEGIN = new RegExp(`${PREFIX}\\{$`);
const HEADERS_END = new RegExp(`^${TIME}\\}$`);
const SERVER = new RegExp(`^${TIME}\\[[DIWEC] ${STAMP} \\w*(?:App|HubSingleUser)${SOURCE}\\]`);
// Jupyter indents the continuation lines of a message.
const CONTINUATION = new RegExp(`^${TIME}(?: {4}|\\t)`);

/** Remove the messages and requests that the Jupyter server logged; `plain` removes colors. */
export function withoutServerLog(lines: string[], plain: (line: string) => string): string[] {
  const kept: string[] = [];
  let isInHeaders = false;
  let isInMessage = false;
  for (const line of lines) {
    const text = plain(line);
    if (isInHeaders) {
      isInHeaders = !HEADERS_END.test(text);
    } else if (HEADERS_BEGIN.test(text)) {
      isInHeaders = true;
    } else {
      const isContinuation: boolean = isInMessage && CONTINUATION.test(text);
      isInMessage = REQUEST.test(text) || SERVER.test(text) || isContinuation;
      if (!isInMessage) {
        kept.push(line);
      }
    }
  }
  return kept;
}
