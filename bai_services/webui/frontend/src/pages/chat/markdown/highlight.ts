import { LanguageDescription } from '@codemirror/language';
import { languages } from '@codemirror/language-data';
import { classHighlighter, highlightCode } from '@lezer/highlight';

/** A part of a code with the CSS classes of its colors. */
export interface CodePart {
  text: string;
  classes: string;
}

/**
 * The parts of a code in a language; undefined if the language is unknown. Each parser is loaded
 * when it is first needed.
 */
export async function highlighted(text: string, language: string): Promise<CodePart[] | undefined> {
  const description = LanguageDescription.matchLanguageName(languages, language, false);
  if (!description) {
    return undefined;
  }
  const support = await description.load();
  const parts: CodePart[] = [];
  highlightCode(
    text,
    support.language.parser.parse(text),
    classHighlighter,
    (part, classes) => parts.push({ text: part, classes }),
    () => parts.push({ text: '\n', classes: '' })
  );
  return parts;
}
