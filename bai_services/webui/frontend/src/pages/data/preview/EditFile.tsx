import { lazy, Suspense, useCallback, useState, type RefObject } from 'react';
import { App, Button, Flex, Skeleton } from 'antd';
import type { EditorView } from '@codemirror/view';
import { useBlocker } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { ApiError } from '../../../data/client';
import { useSaveFile, type FileContent } from '../../../data/folders/fileContent';
import { MAX_EDIT_BYTES } from './kinds';
import { loadScript } from '../../../data/scripts';

const TextEditor = lazy(() =>
  loadScript(() => import('./TextEditor')).then(module => ({ default: module.TextEditor }))
);

const isConflict = (error: Error) => error instanceof ApiError && error.code === 'changed';

interface EditFileProps {
  id: string;
  path: string;
  text: string;
  content: FileContent;
  canWrite: boolean;
  /** Whether `text` is only the beginning of the file, which then cannot be edited. */
  isCut: boolean;
  /** The version of the file that the text is based on. */
  etag: string;
  /** Called with the new version. */
  onSaved: (etag: string) => void;
  /** Called with true when the text is edited. */
  onDirty: (isDirty: boolean) => void;
  /** Called if the file no longer has the version `etag`; `overwrite` saves the text anyway. */
  onConflict: (overwrite: () => void) => void;
  /** Set to the editor while it is shown. */
  editor: RefObject<EditorView | null>;
}

/** Editor of a text file; saving fails if the file has been changed elsewhere in the meantime. */
export function EditFile(props: EditFileProps) {
  const { id, path, content, editor, etag, onConflict, onDirty } = props;
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const [isDirty, setIsDirty] = useState(false);
  const save = useSaveFile(props.onSaved);
  const isEditable = props.canWrite && !props.isCut && content.size <= MAX_EDIT_BYTES;
  const markDirty = useCallback(() => {
    setIsDirty(true);
    onDirty(true);
  }, [onDirty]);

  useBlocker({
    enableBeforeUnload: () => isDirty,
    shouldBlockFn: async () => {
      const discards =
        !isDirty ||
        (await modal.confirm({
          title: t('preview.discard'),
          content: t('preview.discard-help'),
          okText: t('preview.discard-ok'),
          okButtonProps: { danger: true }
        }));
      return !discards;
    }
  });

  const store = (replaces: string) => {
    const saved = editor.current?.state.sliceDoc();
    if (saved === undefined) {
      return;
    }
    save.mutate(
      { id, path, text: saved, replaces },
      {
        onSuccess: () => setIsDirty(editor.current?.state.sliceDoc() !== saved),
        onError: error => {
          if (isConflict(error)) {
            onConflict(() => store('any'));
          }
        }
      }
    );
  };
  return (
    <>
      {save.error && !isConflict(save.error) && <ErrorNotice error={save.error} />}
      {isEditable && (
        <Flex justify="end" style={{ marginBottom: 8 }}>
          <Button
            type="primary"
            disabled={!isDirty}
            loading={save.isPending}
            onClick={() => store(etag)}
          >
            {t('data.save')}
          </Button>
        </Flex>
      )}
      <Suspense fallback={<Skeleton active />}>
        <TextEditor
          name={path}
          text={props.text}
          isReadOnly={!isEditable}
          editorRef={editor}
          onEdit={markDirty}
        />
      </Suspense>
    </>
  );
}
