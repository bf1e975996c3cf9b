import { renderToString } from 'katex';

// In the unit em. Larger sizes would hide other parts of the page.
const MAX_SIZE = 20;

/**
 * Render a formula as HTML with MathML for screen readers; undefined if it is not valid. Commands
 * that make links, load files or set HTML attributes are not permitted.
 */
export function renderFormula(latex: string, isBlock: boolean): string | undefined {
  try {
    return renderToString(latex, {
      displayMode: isBlock,
      throwOnError: true,
      strict: 'ignore',
      trust: false,
      // For commands that are not permitted; the default has too little contrast.
      errorColor: 'currentcolor',
      maxSize: MAX_SIZE
    });
  } catch {
    // Not valid, or nested too deeply.
    return undefined;
  }
}
