// Control characters except tab and line feed, invisible characters except the zero-width joiner
// and non-joiner, and characters that change the direction of the text after them.
const HIDDEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]/g;
// Letters that are written from right to left.
const RIGHT_TO_LEFT =
  /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const [FIRST_STRONG_ISOLATE, POP_ISOLATE] = ['\u2068', '\u2069'];

/** Return a text of a user or program with hidden characters as codes such as `[U+202E]`. */
export const visible = (text: string) =>
  text.replace(
    HIDDEN,
    letter => `[U+${letter.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}]`
  );

/** Return a text that can be part of a sentence without changing the direction of the rest. */
export function isolated(text: string): string {
  const shown = visible(text);
  return RIGHT_TO_LEFT.test(shown) ? FIRST_STRONG_ISOLATE + shown + POP_ISOLATE : shown;
}
