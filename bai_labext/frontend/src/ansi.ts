/** Colours of terminals in what programs print. */

/** A piece of text with the classes of its colours. */
export interface Piece {
  text: string;
  className: string;
}

// Written by code points: control characters have no place in a pattern's text.
const [ESC, BEL] = ['\\x1b', '\\x07'];
const SEQUENCE = new RegExp(
  `${ESC}(?:\\[([0-9;?]*)([A-Za-z])|\\][^${BEL}${ESC}]*(?:${BEL}|${ESC}\\\\)|[@-Z\\\\_-])`,
  'g'
);

/** "\u001b[1;31mbad\u001b[0m" -> "bad", bold and red; whatever moves the cursor is left out. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let styles = new Map<string, string>();
  let from = 0;
  const add = (to: number): void => {
    if (to > from) {
      found.push({ text: text.slice(from, to), className: [...styles.values()].join(' ') });
    }
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(match.index);
    from = match.index + match[0].length;
    if (match[2] === 'm') {
      styles = styled(styles, (match[1] ?? '').split(';').map(Number));
    }
  }
  add(text.length);
  return found;
}

export function plain(text: string): string {
  return text.replace(SEQUENCE, '');
}

/** What a progress bar wrote over itself, as a terminal would leave it: the last of each line. */
export function settled(text: string): string {
  return text.replace(/\r+\n/g, '\n').replace(/[^\n]*\r(?=[^\n])/g, '');
}

function styled(before: Map<string, string>, codes: number[]): Map<string, string> {
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
      // One of many colours: what follows says which, and is no code of its own.
      break;
    }
  }
  return styles;
}
