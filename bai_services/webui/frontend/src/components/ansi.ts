import { visible } from '../i18n/userText';

/** Text of one style in a line of a terminal. */
export interface Span {
  text: string;
  /** CSS classes, for example "ansi-red ansi-bold"; empty for plain text. */
  style: string;
}

/** The current style, which continues on the next line. */
export interface Style {
  color?: string | undefined;
  isBold?: boolean;
  isItalic?: boolean;
  isUnderlined?: boolean;
}

const COLORS = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
/** Longer lines are truncated: a log can be one line of many megabytes. */
export const MAX_LINE_LENGTH = 10_000;
const MAX_SPANS = 500;
/** Maximum number of lines of an output in a preview. */
export const MAX_OUTPUT_LINES = 1_000;
// SGR sequences set the style. Other escape sequences, and control characters except tab and line
// feed, are removed.
const SEQUENCE =
  // eslint-disable-next-line no-control-regex
  /\u001b\[([0-9;:]*)m|\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b.?|[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f]/g;

/** Return the spans of a line and the style after it. */
export function parseLine(line: string, before: Style): { spans: Span[]; after: Style } {
  const text = withoutOverwritten(line).slice(0, MAX_LINE_LENGTH);
  const spans: Span[] = [];
  let style = before;
  let start = 0;
  const add = (end: number) => {
    if (end > start) {
      const part = { text: visible(text.slice(start, end)), style: classesOf(style) };
      const last = spans.at(-1);
      if (last && (last.style === part.style || spans.length >= MAX_SPANS)) {
        last.text += part.text;
      } else {
        spans.push(part);
      }
    }
  };
  for (const sequence of text.matchAll(SEQUENCE)) {
    add(sequence.index);
    start = sequence.index + sequence[0].length;
    if (sequence[1] !== undefined) {
      style = styled(style, sequence[1]);
    }
  }
  add(text.length);
  return { spans, after: style };
}

/** Return the spans of each line; a style continues in the next line. */
export function spansOf(lines: readonly string[]): Span[][] {
  let style: Style = {};
  return lines.map(line => {
    const { spans, after } = parseLine(line, style);
    style = after;
    return spans;
  });
}

/**
 * Return the text after the last carriage return in a line: a progress bar replaces its previous
 * state in this way.
 */
function withoutOverwritten(line: string): string {
  const trimmed = line.replace(/\r+$/, '');
  return trimmed.slice(trimmed.lastIndexOf('\r') + 1);
}

function classesOf({ color, isBold, isItalic, isUnderlined }: Style): string {
  return [
    color && `ansi-${color}`,
    isBold && 'ansi-bold',
    isItalic && 'ansi-italic',
    isUnderlined && 'ansi-underline'
  ]
    .filter(Boolean)
    .join(' ');
}

function styled(before: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map(Number);
  let style = before;
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index] ?? 0;
    if (code === 38 || code === 48) {
      const length = codes[index + 1] === 5 ? 2 : 4;
      if (code === 38) {
        style = { ...style, color: extendedColor(codes.slice(index + 1, index + 1 + length)) };
      }
      index += length;
    } else {
      style = { ...style, ...changeOf(code) };
    }
  }
  return style;
}

const PLAIN: Style = { color: undefined, isBold: false, isItalic: false, isUnderlined: false };
const CHANGES: Record<number, Style> = {
  0: PLAIN,
  1: { isBold: true },
  3: { isItalic: true },
  4: { isUnderlined: true },
  22: { isBold: false },
  23: { isItalic: false },
  24: { isUnderlined: false },
  39: { color: undefined }
};

/** Background colors are ignored: text in every color must stay readable on the page. */
function changeOf(code: number): Style {
  if (code >= 30 && code <= 37) {
    return { color: COLORS[code - 30] };
  }
  if (code >= 90 && code <= 97) {
    return { color: COLORS[code - 90] };
  }
  return CHANGES[code] ?? {};
}

/** The nearest of the eight colors to `5;INDEX` or `2;RED;GREEN;BLUE`. */
function extendedColor([kind, first = 0, green = 0, blue = 0]: number[]): string | undefined {
  if (kind === 2) {
    return nearest(first, green, blue);
  }
  if (kind !== 5) {
    return undefined;
  }
  if (first < 16) {
    return COLORS[first % 8];
  }
  if (first >= 232) {
    const gray = (first - 232) * 11;
    return nearest(gray, gray, gray);
  }
  const cube = first - 16;
  const level = (part: number) => (part % 6) * 51;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6)), level(cube));
}

const nearest = (red: number, green: number, blue: number) =>
  COLORS[(red > 127 ? 1 : 0) + (green > 127 ? 2 : 0) + (blue > 127 ? 4 : 0)];
