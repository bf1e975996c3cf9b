import { lazy, Suspense, useEffect, useState, type ComponentProps, type ReactNode } from 'react';
import type { Root } from 'hast';
import { toJsxRuntime } from 'hast-util-to-jsx-runtime';
import { Fragment, jsx, jsxs } from 'react/jsx-runtime';
import { useLatest } from '../../../components/useLatest';
import { visible } from '../../../i18n/userText';
import { CodeBlock } from './CodeBlock';
import type { FormulaProps } from './Formula';
import { MarkdownParser } from './MarkdownParser';

/** Interval of parsing the Markdown of an answer while it arrives. */
const PARSE_MILLIS = 250;
const WEB_ADDRESS = /^https?:\/\//i;

const parser = new MarkdownParser(
  () => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' })
);

// Without the module, a formula is shown as its source.
const Formula = lazy(() =>
  import('./Formula').catch(() => ({ default: ({ source }: FormulaProps) => <>{source}</> }))
);

const COMPONENTS = {
  // The worker renders formulas; Markdown has no other element of this name.
  math: (props: { 'data-html'?: string; 'data-block'?: string; children?: ReactNode }) => (
    <Suspense fallback={props.children}>
      <Formula
        html={props['data-html'] ?? ''}
        isBlock={props['data-block'] === 'true'}
        source={props.children}
      />
    </Suspense>
  ),
  // Images are omitted: the page must not load anything that a model names.
  img: ({ alt }: ComponentProps<'img'>) => <em>{alt}</em>,
  // Headings become paragraphs, because they would be part of the page's structure.
  ...Object.fromEntries(
    ['h1', 'h2', 'h3', 'h4', 'h5', 'h6'].map(name => [
      name,
      ({ children }: ComponentProps<'p'>) => (
        <p>
          <strong>{children}</strong>
        </p>
      )
    ])
  ),
  a: ({ href, children }: ComponentProps<'a'>) =>
    href && WEB_ADDRESS.test(href) ? (
      <a href={href} target="_blank" rel="noopener noreferrer" title={href}>
        {children}
      </a>
    ) : (
      <span>{children}</span>
    ),
  // Omit `pre`: its only child renders the whole block of code.
  pre: ({ children }: ComponentProps<'pre'>) => <>{children}</>,
  code: ({ className, children }: ComponentProps<'code'>) => {
    const text = typeof children === 'string' ? children : '';
    // Only a block of code ends with a line break.
    return text.endsWith('\n') ? (
      <CodeBlock text={text.slice(0, -1)} language={/language-(\S+)/.exec(className ?? '')?.[1]} />
    ) : (
      <code>{children}</code>
    );
  }
};

/** The Markdown of a model, without HTML and images; only links to web pages are kept. */
export function ChatMarkdown({ text }: { text: string }) {
  const parsed = useTree(text);
  if (!parsed) {
    return <div className="bai-chat-plain">{visible(text)}</div>;
  }
  return (
    <div className="bai-markdown">
      {toJsxRuntime(parsed, {
        Fragment,
        jsx,
        jsxs,
        components: COMPONENTS,
        ignoreInvalidStyle: true
      })}
    </div>
  );
}

/** The tree of the text, or of an earlier text of the same message; null: not parsed yet. */
function useTree(text: string): Root | null {
  const parsedText = useThrottled(text);
  const [tree, setTree] = useState<Root | null>(null);
  useEffect(() => {
    const control = new AbortController();
    void parser.parse(parsedText, control.signal).then(parsed => {
      if (!control.signal.aborted) {
        setTree(parsed);
      }
    });
    return () => control.abort();
  }, [parsedText]);
  return tree;
}

/** The latest value, at most every `PARSE_MILLIS`. */
function useThrottled(value: string): string {
  const [shown, setShown] = useState(value);
  const latest = useLatest(() => value);
  const isBehind = shown !== value;
  useEffect(() => {
    if (!isBehind) {
      return;
    }
    const timer = setInterval(() => setShown(latest()), PARSE_MILLIS);
    return () => clearInterval(timer);
  }, [isBehind, latest]);
  return shown;
}
