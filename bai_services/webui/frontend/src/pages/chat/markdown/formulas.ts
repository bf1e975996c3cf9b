import type { Element, ElementContent, Root, RootContent } from 'hast';

/** A formula in LaTeX notation in a text. */
interface Formula {
  /** With its delimiters. */
  source: string;
  latex: string;
  /** Whether the formula is a separate block. */
  isBlock: boolean;
}

/** Render a formula as HTML; undefined if it is not valid. */
export type RenderFormula = (latex: string, isBlock: boolean) => string | undefined;

/** Limits of one text: the page must remain fast. Formulas beyond them are shown as text. */
const MAX_FORMULAS = 500;
const MAX_HTML_CHARACTERS = 500_000;

// Private-use characters; a mark stands for a formula while the Markdown is parsed.
const FIRST = '\uE000';
const LAST = '\uE001';
const MARK = /\uE000(\d+)\uE001/g;

/**
 * Matches text without formulas (code, escaped characters, URLs), or a formula. As in Pandoc, a
 * single dollar sign begins a formula only before a character other than a space, and ends it only
 * after such a character and before anything but a digit: "$5 or $10" has no formula.
 */
const PARTS = new RegExp(
  [
    /`{3,}[\s\S]*?(?:`{3,}|(?![\s\S]))|~{3,}\n[\s\S]*?(?:~{3,}|(?![\s\S]))/,
    /`+[^`]*`+|\\[\\$`]|https?:\/\/\S+/,
    /\$\$(?<dollars>[^$]{1,4000}?)\$\$|\\\[(?<brackets>[\s\S]{1,4000}?)\\\]/,
    /\\\((?<round>[\s\S]{1,1000}?)\\\)|\$(?<dollar>(?![\s$])[^$\n]{0,999}?[^$\s\\])\$(?!\d)/
  ]
    .map(({ source }) => source)
    .join('|'),
  'g'
);

/** Replace the formulas of a Markdown text by marks. */
export function takeFormulas(text: string): { text: string; formulas: Formula[] } {
  const formulas: Formula[] = [];
  if (text.includes(FIRST)) {
    return { text, formulas };
  }
  const replaced = text.replace(PARTS, (source, ...rest) => {
    const groups = rest.at(-1) as Record<string, string | undefined>;
    const block = groups['dollars'] ?? groups['brackets'];
    const latex = block ?? groups['round'] ?? groups['dollar'];
    if (latex === undefined || formulas.length === MAX_FORMULAS) {
      return source;
    }
    formulas.push({ source, latex, isBlock: block !== undefined });
    return `${FIRST}${formulas.length - 1}${LAST}`;
  });
  return { text: replaced, formulas };
}

/**
 * Replace the marks in a tree by `math` elements with the HTML of the formulas. In code and in
 * attributes, and if a formula is not valid, its source replaces the mark.
 */
export function putFormulas(tree: Root, formulas: readonly Formula[], render: RenderFormula): void {
  let characters = 0;
  const rendered = new Map<Formula, string | undefined>();
  const sourceOf = (text: string) =>
    text.replace(MARK, (mark, index: string) => formulas[Number(index)]?.source ?? mark);
  const htmlOf = (formula: Formula) => {
    if (!rendered.has(formula) && characters < MAX_HTML_CHARACTERS) {
      const html = render(formula.latex, formula.isBlock);
      characters += html?.length ?? 0;
      rendered.set(formula, characters > MAX_HTML_CHARACTERS ? undefined : html);
    }
    return rendered.get(formula);
  };
  const elementsOf = (text: string): ElementContent[] =>
    text.split(/(\uE000\d+\uE001)/).flatMap((part): ElementContent[] => {
      const formula = formulas[Number(/^\uE000(\d+)/.exec(part)?.[1] ?? NaN)];
      const html = formula && htmlOf(formula);
      if (html === undefined) {
        return part === '' ? [] : [{ type: 'text', value: sourceOf(part) }];
      }
      const properties = { dataHtml: html, dataBlock: String(formula?.isBlock) };
      const children: Element['children'] = [{ type: 'text', value: sourceOf(part) }];
      return [{ type: 'element', tagName: 'math', properties, children }];
    });
  const visit = (parent: Root | Element, isCode: boolean) => {
    parent.children = (parent.children as RootContent[]).flatMap((child): RootContent[] => {
      if (child.type === 'text') {
        return isCode ? [{ ...child, value: sourceOf(child.value) }] : elementsOf(child.value);
      }
      if (child.type === 'element') {
        for (const [name, value] of Object.entries(child.properties)) {
          if (typeof value === 'string') {
            child.properties[name] = sourceOf(value);
          }
        }
        visit(child, isCode || child.tagName === 'code');
      }
      return [child];
    });
  };
  visit(tree, false);
}
