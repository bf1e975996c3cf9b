/** ANSI escape sequences in the output of programs. */

/** A part of a text with one style; `className` contains the CSS classes of the style. */
export interface Segment {
  text: string;
  className: string;
}

// Inserted as variables, because eslint rejects control characters in a regular expression.
const [ESC, BEL] = ['\\x1b', '\\x07'];
const SEQUENCE = new RegExp(
  `${ESC}(?:\\[([0-9;?]*)([A-Za-z])|\\][^${BEL}${ESC}]*(?:${BEL}|${ESC}\\\\)|[@-Z\\\\_-])`,
  'g'
);

/**
 * Split a text into segments: "\u001b[1;31mbad\u001b[0m" -> "bad", bold and red. Sequences other
 * than styles, such as cursor movements, are removed.
 */
export function parseAnsi(text: string): Segment[] {
  const segments: Segment[] = [];
  let styles = new Map<string, string>();
  let from = 0;
  const add = (to: number): void => {
    if (to > from) {
      segments.push({ text: text.slice(from, to), className: [...styles.values()].join(' ') });
    }
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(match.index);
    from = match.index + match[0].length;
    if (match[2] === 'm') {
      styles = applyCodes(styles, (match[1] ?? '').split(';').map(Number));
    }
  }
  add(text.length);
  return segments;
}

/** Remove all escape sequences. */
export function plain(text: string): string {
  return text.replace(SEQUENCE, '');
}

/** Remove the part of each line before its last carriage return, such as an old progress bar. */
export function withoutOverwritten(text: string): string {
  return text.replace(/\r+\n/g, '\n').replace(/[^\n]*\r(?=[^\n])/g, '');
}

function applyCodes(before: Map<string, string>, codes: number[]): Map<string, string> {
  const styles = new Map(before);
  for (const code of codes) {
    if (code === 0) {
      styles.clear();
    } else if (code === 1) {
      styles.set('bold', 'bai-ansi-bold');
    } else if (code === 22) {
      styles.delete('bold');
    } else if (code === 39) {
      styles.delete('color');
    } else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
      styles.set('color', `bai-ansi-${code % 10}`);
    } else if (code === 38 || code === 48) {
      // 256-color and RGB styles are not supported; the remaining numbers are their parameters.
      break;
    }
  }
  return styles;
}
