import { LanguageDescription } from '@codemirror/language';
import { languages } from '@codemirror/language-data';
import { classHighlighter, highlightCode } from '@lezer/highlight';

/** A piece of source code and the CSS classes that color it. */
export interface CodePart {
  text: string;
  classes: string;
}

/**
 * The source code, split into highlighted pieces; undefined if the programming language is unknown.
 * Each parser is loaded when it is first needed.
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
