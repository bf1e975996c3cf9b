import type { ReactNode } from 'react';
import 'katex/dist/katex.min.css';

export interface FormulaProps {
  /** Output of KaTeX, which escapes the text of the model. */
  html: string;
  isBlock: boolean;
  /** The formula as the model has written it. */
  source: ReactNode;
}

/** A formula that `renderFormula` has rendered. */
export default function Formula({ html, isBlock }: FormulaProps) {
  return (
    <span
      className={isBlock ? 'bai-formula-block' : undefined}
      // A long formula can be scrolled.
      tabIndex={isBlock ? 0 : undefined}
      dangerouslySetInnerHTML={{ __html: html }}
    />
  );
}
