/** Worker of `MarkdownParser`: parses one text after the other. */
import type { Root } from 'hast';
import { parseMarkdown } from '../../data/preview/markdown/parse';
import { putFormulas, takeFormulas } from './formulas';

onmessage = ({ data }: MessageEvent<string>) => {
  // The parser overflows its stack if a text is nested very deeply.
  void parse(data)
    .catch(() => null)
    .then(tree => postMessage(tree));
};

/** The tree of a text; KaTeX is loaded with the first formula. */
async function parse(data: string): Promise<Root | null> {
  const { text, formulas } = takeFormulas(data);
  const tree = parseMarkdown([text])?.[0] ?? null;
  if (tree && formulas.length > 0) {
    // Without KaTeX, formulas are shown as text.
    const render = await import('./katex').then(
      module => module.renderFormula,
      () => () => undefined
    );
    putFormulas(tree, formulas, render);
  }
  return tree;
}
