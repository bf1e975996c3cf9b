import { Skeleton } from 'antd';
import type { Root } from 'hast';
import { toJsxRuntime } from 'hast-util-to-jsx-runtime';
import type { ComponentProps, ReactNode } from 'react';
import { Fragment, jsx, jsxs } from 'react/jsx-runtime';
import { useMarkdown } from './useMarkdown';

const COMPONENTS = {
  // Images are omitted: the page loads neither files of the folder nor images of other servers.
  img: ({ alt }: ComponentProps<'img'>) => <em>{alt}</em>,
  a: ({ href, children }: ComponentProps<'a'>) => (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  )
};

interface MarkdownPreviewProps {
  text: string;
  /** Shown if the text is too complex; default: the text without its format. */
  fallback?: ReactNode;
}

/** Markdown without HTML and images. */
export function MarkdownPreview({ text, fallback }: MarkdownPreviewProps) {
  const trees = useMarkdown([text]);
  if (trees === null) {
    return fallback ?? <div style={{ whiteSpace: 'pre-wrap' }}>{text}</div>;
  }
  return trees?.[0] ? <MarkdownTree tree={trees[0]} /> : <Skeleton active />;
}

export function MarkdownTree({ tree }: { tree: Root }) {
  return (
    <div className="bai-markdown">
      {toJsxRuntime(tree, {
        Fragment,
        jsx,
        jsxs,
        components: COMPONENTS,
        ignoreInvalidStyle: true
      })}
    </div>
  );
}
