import { Fragment, useMemo } from 'react';
import { MAX_OUTPUT_LINES, spansOf } from './ansi';

/** Terminal output in its colors; at most the first 1,000 lines. */
export function AnsiText({ text }: { text: string }) {
  const lines = useMemo(() => spansOf(text.split('\n').slice(0, MAX_OUTPUT_LINES)), [text]);
  return (
    <pre className="bai-preview-text">
      {lines.map((spans, number) => (
        <Fragment key={number}>
          {spans.map((span, position) => (
            <span key={position} className={span.style || undefined}>
              {span.text}
            </span>
          ))}
          {'\n'}
        </Fragment>
      ))}
    </pre>
  );
}
