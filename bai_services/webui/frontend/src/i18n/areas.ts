type Texts = Record<string, string>;

/** Texts by area from the files of one language: `./sessions.json` is the area `sessions`. */
export function textsOf(files: Record<string, Texts>): Record<string, Texts> {
  return Object.fromEntries(
    Object.entries(files).map(([path, texts]) => [path.replace(/^.*\/|\.json$/g, ''), texts])
  );
}
