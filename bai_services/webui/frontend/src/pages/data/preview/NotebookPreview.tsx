import { Alert, Button, Empty, Skeleton } from 'antd';
import type { Root } from 'hast';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { AnsiText } from '../../../components/AnsiText';
import { MarkdownTree } from './markdown/MarkdownPreview';
import { TooComplex } from './TooComplex';
import { useMarkdown } from './markdown/useMarkdown';
import { cellsOf, type Notebook, type NotebookCell } from './notebook';

interface NotebookPreviewProps {
  text: string;
  onShowText: () => void;
}

/** The cells of a Jupyter notebook with their outputs. */
export function NotebookPreview({ text, onShowText }: NotebookPreviewProps) {
  const { t } = useTranslation();
  const notebook = useMemo(() => cellsOf(text), [text]);
  if (notebook === null) {
    return <Alert type="warning" showIcon title={t('preview.bad-notebook')} />;
  }
  if (notebook.cells.length === 0) {
    return <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('preview.no-cells')} />;
  }
  return <Cells notebook={notebook} onShowText={onShowText} />;
}

interface CellsProps {
  notebook: Notebook;
  onShowText: () => void;
}

function Cells({ notebook, onShowText }: CellsProps) {
  // Pass an empty text for each cell that is not Markdown, so that the index of a tree is the index
  // of its cell.
  const trees = useMarkdown(
    notebook.cells.map(cell => (cell.type === 'markdown' ? cell.source : ''))
  );
  if (trees === undefined) {
    return <Skeleton active />;
  }
  return (
    <>
      <LimitNotice notebook={notebook} onShowText={onShowText} />
      {trees === null && <TooComplex />}
      {notebook.cells.map((cell, index) => (
        <Cell key={index} cell={cell} tree={trees?.[index]} />
      ))}
    </>
  );
}

/** What the limits of the preview leave out, and a button that shows the text of the file. */
function LimitNotice({ notebook, onShowText }: CellsProps) {
  const { t, i18n } = useTranslation();
  const { cells, omitted } = notebook;
  const numberText = (count: number) => count.toLocaleString(i18n.language);
  const notices = [
    ...(omitted.cells > 0
      ? [
          t('preview.first-cells', {
            shown: numberText(cells.length),
            total: numberText(cells.length + omitted.cells)
          })
        ]
      : []),
    ...(omitted.outputs > 0 || omitted.characters > 0 ? [t('preview.shortened')] : [])
  ];
  return (
    notices.length > 0 && (
      <Alert
        type="info"
        showIcon
        title={notices.join(' ')}
        action={
          <Button size="small" onClick={onShowText}>
            {t('preview.whole-text')}
          </Button>
        }
      />
    )
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
