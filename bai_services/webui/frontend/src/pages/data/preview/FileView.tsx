import { lazy, Suspense, useRef, useState } from 'react';
import { Alert, Segmented, Skeleton } from 'antd';
import type { EditorView } from '@codemirror/view';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../../components/bytes';
import type { FileContent } from '../../../data/folders/fileContent';
import { EditFile } from './EditFile';
import { ImagePreview } from './ImagePreview';
import { MAX_BYTES, textOf, type Kind } from './kinds';
import { TablePreview } from './TablePreview';
import { TooComplex } from './TooComplex';
import { loadScript } from '../../../data/scripts';

const MarkdownPreview = lazy(() =>
  loadScript(() => import('./markdown/MarkdownPreview')).then(module => ({
    default: module.MarkdownPreview
  }))
);
const NotebookPreview = lazy(() =>
  loadScript(() => import('./NotebookPreview')).then(module => ({
    default: module.NotebookPreview
  }))
);
const PdfPreview = lazy(() =>
  loadScript(() => import('./PdfPreview')).then(module => ({ default: module.PdfPreview }))
);

interface FileViewProps {
  id: string;
  path: string;
  kind: Kind;
  content: FileContent;
  canWrite: boolean;
  etag: string;
  onSaved: (etag: string) => void;
  onConflict: (overwrite: () => void) => void;
  onDirty: (isDirty: boolean) => void;
}

/** The content of a file: an image, a PDF, or a text with a preview if its format has one. */
export function FileView(props: FileViewProps) {
  const { t, i18n } = useTranslation();
  const { kind, content, path } = props;
  const isCut = content.bytes.length < content.size;
  if (isCut && (kind === 'image' || kind === 'pdf' || kind === 'notebook')) {
    const sizes = {
      size: formatBytes(content.size, i18n.language),
      limit: formatBytes(MAX_BYTES[kind], i18n.language)
    };
    return <Alert type="info" showIcon title={t('preview.too-large', sizes)} />;
  }
  return (
    <Suspense fallback={<Skeleton active />}>
      {kind === 'image' && <ImagePreview name={path} bytes={content.bytes} />}
      {kind === 'pdf' && <PdfPreview bytes={content.bytes} />}
      {kind !== 'image' && kind !== 'pdf' && <TextView {...props} isCut={isCut} />}
    </Suspense>
  );
}

function TextView(props: FileViewProps & { isCut: boolean }) {
  const { t, i18n } = useTranslation();
  const { kind, content, path, isCut } = props;
  const [view, setView] = useState<'preview' | 'text'>('preview');
  const [wasEdited, setWasEdited] = useState(false);
  const [draft, setDraft] = useState<string>();
  const editor = useRef<EditorView>(null);
  const text = textOf(content.bytes, isCut);
  if (text === null) {
    return <Alert type="info" showIcon title={t('preview.binary')} />;
  }
  const showsText = kind === 'text' || view === 'text' || content.size === 0;
  const shown = draft ?? text;
  const change = (chosen: 'preview' | 'text') => {
    setView(chosen);
    setWasEdited(true);
    // The preview also shows unsaved changes.
    setDraft(editor.current?.state.sliceDoc());
  };
  return (
    <>
      {isCut && (
        <Alert
          type="info"
          showIcon
          title={t('preview.cut', {
            limit: formatBytes(content.bytes.length, i18n.language),
            size: formatBytes(content.size, i18n.language)
          })}
        />
      )}
      {kind !== 'text' && content.size > 0 && (
        <Segmented
          value={view}
          onChange={change}
          aria-label={t('preview.view')}
          style={{ alignSelf: 'start' }}
          options={[
            { value: 'preview', label: t('preview.preview') },
            { value: 'text', label: t('preview.text') }
          ]}
        />
      )}
      {(showsText || wasEdited) && (
        <div hidden={!showsText}>
          <EditFile {...props} text={text} editor={editor} />
        </div>
      )}
      {!showsText && kind === 'markdown' && (
        <MarkdownPreview text={shown} fallback={<TooComplex />} />
      )}
      {!showsText && kind === 'table' && <TablePreview name={path} text={shown} />}
      {!showsText && kind === 'notebook' && (
        <NotebookPreview text={shown} onShowText={() => change('text')} />
      )}
    </>
  );
}
