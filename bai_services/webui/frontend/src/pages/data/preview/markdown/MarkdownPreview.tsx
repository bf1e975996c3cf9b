import { Alert, Skeleton } from 'antd';
import type { Root } from 'hast';
import { toJsxRuntime } from 'hast-util-to-jsx-runtime';
import type { ComponentProps } from 'react';
import { useTranslation } from 'react-i18next';
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

/** Markdown without HTML and images. */
export function MarkdownPreview({ text }: { text: string }) {
  const trees = useMarkdown([text]);
  if (trees === null) {
    return <TooComplex />;
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

export function TooComplex() {
  const { t } = useTranslation();
  return <Alert type="info" showIcon title={t('preview.too-complex')} />;
}
