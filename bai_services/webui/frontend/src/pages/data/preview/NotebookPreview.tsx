import { Alert, Empty, Skeleton } from 'antd';
import type { Root } from 'hast';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { AnsiText } from '../../../components/AnsiText';
import { MarkdownTree, TooComplex } from './markdown/MarkdownPreview';
import { useMarkdown } from './markdown/useMarkdown';
import { cellsOf, type Notebook, type NotebookCell } from './notebook';

/** The cells of a Jupyter notebook with their outputs. */
export function NotebookPreview({ text }: { text: string }) {
  const { t } = useTranslation();
  const notebook = useMemo(() => cellsOf(text), [text]);
  if (notebook === null) {
    return <Alert type="warning" showIcon title={t('preview.bad-notebook')} />;
  }
  if (notebook.cells.length === 0) {
    return <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('preview.no-cells')} />;
  }
  return <Cells notebook={notebook} />;
}

function Cells({ notebook }: { notebook: Notebook }) {
  const { t } = useTranslation();
  // Parse an empty text for a cell without Markdown, so that a tree has the index of its cell.
  const trees = useMarkdown(
    notebook.cells.map(cell => (cell.type === 'markdown' ? cell.source : ''))
  );
  if (trees === undefined) {
    return <Skeleton active />;
  }
  const { omitted } = notebook;
  return (
    <>
      {(omitted.cells > 0 || omitted.outputs > 0 || omitted.characters > 0) && (
        <Alert type="info" showIcon title={t('preview.omitted', { ...omitted })} />
      )}
      {trees === null && <TooComplex />}
      {notebook.cells.map((cell, index) => (
        <Cell key={index} cell={cell} tree={trees?.[index]} />
      ))}
    </>
  );
}

function Cell({ cell, tree }: { cell: NotebookCell; tree: Root | undefined }) {
  const { t } = useTranslation();
  if (cell.type === 'markdown') {
    // Without trees, the cell's source is shown.
    return tree ? (
      <MarkdownTree tree={tree} />
    ) : (
      <pre className="bai-preview-text">{cell.source}</pre>
    );
  }
  return (
    <section className="bai-cell">
      <span className="bai-cell-count">[{cell.count ?? ' '}]</span>
      <pre className="bai-preview-text bai-cell-source">{cell.source}</pre>
      {cell.outputs.map((output, index) =>
        output.image ? (
          <img key={index} src={output.image} alt={t('preview.output')} loading="lazy" />
        ) : (
          output.text && <AnsiText key={index} text={output.text} />
        )
      )}
    </section>
  );
}
