import { lazy, Suspense, useCallback, useState, type RefObject } from 'react';
import { Alert, App, Button, Flex, Skeleton, Space } from 'antd';
import type { EditorView } from '@codemirror/view';
import { useBlocker } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { ApiError } from '../../../data/client';
import { forgetContent, useSaveFile, type FileContent } from '../../../data/folders/fileContent';
import { MAX_EDIT_BYTES } from './kinds';
import { loadScript } from '../../../data/scripts';

const TextEditor = lazy(() =>
  loadScript(() => import('./TextEditor')).then(module => ({ default: module.TextEditor }))
);

interface EditFileProps {
  id: string;
  path: string;
  text: string;
  content: FileContent;
  canWrite: boolean;
  isCut: boolean;
  onSaved: () => void;
  /** Set to the editor while it is shown. */
  editor: RefObject<EditorView | null>;
}

/** Editor of a text file; saving fails if another user has changed the file in the meantime. */
export function EditFile(props: EditFileProps) {
  const { id, path, content, editor } = props;
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const [isDirty, setIsDirty] = useState(false);
  const [etag, setEtag] = useState(content.etag);
  const save = useSaveFile();
  const isEditable = props.canWrite && !props.isCut && content.size <= MAX_EDIT_BYTES;
  const hasConflict = save.error instanceof ApiError && save.error.code === 'changed';
  const markDirty = useCallback(() => setIsDirty(true), []);

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
        onSuccess: entry => {
          setEtag(`"${entry.etag}"`);
          setIsDirty(editor.current?.state.sliceDoc() !== saved);
          props.onSaved();
        }
      }
    );
  };
  return (
    <>
      {hasConflict && (
        <Alert
          type="warning"
          showIcon
          title={t('preview.changed')}
          action={
            <Space wrap>
              <Button onClick={() => store('any')}>{t('preview.overwrite')}</Button>
              <Button onClick={() => void forgetContent(id, path)}>{t('preview.reload')}</Button>
            </Space>
          }
        />
      )}
      {save.error && !hasConflict && <ErrorNotice error={save.error} />}
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
