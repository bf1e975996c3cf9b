import type { Element, Root } from 'hast';
import { describe, expect, test } from 'vitest';
import { putFormulas, takeFormulas, type RenderFormula } from '../src/pages/chat/markdown/formulas';
import { renderFormula } from '../src/pages/chat/markdown/katex';
import { parseMarkdown } from '../src/pages/data/preview/markdown/parse';

const latexOf = (text: string) => takeFormulas(text).formulas.map(({ latex }) => latex);

/** Texts and formulas of a Markdown text, with «» around formulas. */
function shown(text: string, render: RenderFormula = latex => latex): string {
  const taken = takeFormulas(text);
  const tree = parseMarkdown([taken.text])?.[0] as Root;
  putFormulas(tree, taken.formulas, render);
  const textOf = (node: Root | Element): string =>
    node.children
      .map(child => {
        if (child.type === 'text') return child.value;
        if (child.type !== 'element') return '';
        return child.tagName === 'math'
          ? `«${String(child.properties['dataHtml'])}»`
          : textOf(child);
      })
      .join('');
  return textOf(tree);
}

describe('formulas in Markdown', () => {
  test.each([
    ['$x_1$ and \\(y\\)', ['x_1', 'y']],
    ['$$\na^2\n$$ and \\[b\\]', ['\na^2\n', 'b']],
    ['It costs $5 or $10.', []],
    ['From $ 5 $ to \\$6$', []],
    ['`$x$`, ```\n$y$\n``` and `a` $z$', ['z']],
    ['https://example.com/$a$ $$open', []]
  ])('%j has the formulas %j', (text, formulas) => {
    expect(latexOf(text)).toEqual(formulas);
  });

  test('are not changed by Markdown, and Markdown around them is kept', () => {
    expect(shown('**a** $x_1 * y_2 * z_3$ *b*')).toBe('a «x_1 * y_2 * z_3» b');
    expect(shown('| a |\n| - |\n| $\\|x|$ |')).toContain('«\\|x|»');
  });

  test('are text in code, if they are not valid, and beyond the limits', () => {
    expect(shown('    $x$\n')).toBe('$x$\n');
    expect(shown('$x$', () => undefined)).toBe('$x$');
    expect(shown('$x$ $y$', latex => latex.repeat(400_000))).toMatch(/^«x+» \$y\$$/);
    expect(latexOf('$x$ '.repeat(600))).toHaveLength(500);
    expect(shown('\uE0000\uE001 $x$')).toBe('\uE0000\uE001 $x$');
  });

  test('take a time that grows with the length of a hostile text', () => {
    const start = performance.now();
    for (const part of ['$$', '$a', '\\[', '\\(', '`', '```', '~~~\n', '$$a']) {
      takeFormulas(part.repeat(10_000));
    }
    expect(performance.now() - start).toBeLessThan(5_000);
  });
});

describe('KaTeX', () => {
  test('renders a formula with MathML', () => {
    expect(renderFormula('\\frac{1}{2}', true)).toContain('<mfrac>');
  });

  test.each([
    '\\href{javascript:alert(1)}{x}',
    '\\includegraphics{https://example.com/p.png}',
    '\\htmlClass{ant-btn}{x}',
    '\\url{https://example.com}'
  ])('makes no link, image or attribute of %s', latex => {
    const html = renderFormula(latex, false) ?? '';
    expect(html).not.toMatch(/<(a|img)[ >]|ant-btn"/);
  });

  test('escapes HTML, and bounds macros, sizes and depth', () => {
    expect(renderFormula('\\text{<img src=x>}', false)).not.toContain('<img');
    expect(renderFormula('\\def\\a{\\a\\a}\\a', false)).toBeUndefined();
    expect(renderFormula('\\rule{1000em}{1000em}', false)).not.toContain('1000em;');
    expect(renderFormula('{'.repeat(4000), false)).toBeUndefined();
  });
});
