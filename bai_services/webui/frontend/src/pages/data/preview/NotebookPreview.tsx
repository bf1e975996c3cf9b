import { Alert, Empty } from 'antd';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { AnsiText } from '../../../components/AnsiText';
import { MarkdownPreview } from './MarkdownPreview';
import { cellsOf, type NotebookCell } from './notebook';

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
  return (
    <>
      {notebook.cells.map((cell, index) => (
        <Cell key={index} cell={cell} />
      ))}
      {notebook.isCut && <p>{t('preview.first-cells', { count: notebook.cells.length })}</p>}
    </>
  );
}

function Cell({ cell }: { cell: NotebookCell }) {
  const { t } = useTranslation();
  if (cell.type === 'markdown') {
    return <MarkdownPreview text={cell.source} />;
  }
  return (
    <section className="bai-cell">
      <span className="bai-cell-count">[{cell.count ?? ' '}]</span>
      <pre className="bai-preview-text bai-cell-source">{cell.source}</pre>
      {cell.outputs.map((output, index) =>
        output.image ? (
          <img key={index} src={output.image} alt={t('preview.output')} />
        ) : (
          output.text && <AnsiText key={index} text={output.text} />
        )
      )}
    </section>
  );
}
