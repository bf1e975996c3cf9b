import { useRef, useState, type ReactNode } from 'react';
import { App, Button, Flex, Tooltip } from 'antd';
import { useTranslation } from 'react-i18next';
import {
  downloadUrl,
  joined,
  useMakeDirectory,
  useRemoveFiles,
  type Directory
} from '../../data/folders/files';
import { useSaveFile } from '../../data/folders/fileContent';
import { addUploads } from '../../data/folders/uploads';
import { chosenFiles } from './dropped';
import { NameDialog } from './NameDialog';

interface FileToolbarProps {
  directory: Directory;
  canWrite: boolean;
  /** Why no files can be uploaded; empty if they can. */
  uploadRefusal: string;
  /** Selected names with their types. */
  selected: ReadonlyMap<string, string>;
  onDone: () => void;
  /** Called when a file has been created. */
  onCreated: (path: string) => void;
  children: ReactNode;
}

export function FileToolbar(props: FileToolbarProps) {
  const { t } = useTranslation();
  const { directory, selected } = props;
  const entries = [...selected].map(([name, type]) => ({
    path: joined(directory.path, name),
    type
  }));
  return (
    <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
      <UploadButtons directory={directory} refusal={props.uploadRefusal} />
      {props.canWrite && (
        <>
          <NewDirectory directory={directory} />
          <NewFile directory={directory} onCreated={props.onCreated} />
        </>
      )}
      <Button
        href={downloadUrl(
          directory.id,
          entries.length > 0 ? entries : [{ path: directory.path, type: 'directory' }]
        )}
        download
      >
        {entries.length > 0
          ? t('data.selected', { action: t('data.download'), count: entries.length })
          : t('data.download-all')}
      </Button>
      {props.canWrite && entries.length > 0 && (
        <RemoveFiles
          id={directory.id}
          paths={entries.map(({ path }) => path)}
          onDone={props.onDone}
        />
      )}
      <span style={{ flex: 1 }} />
      {props.children}
    </Flex>
  );
}

function UploadButtons({ directory, refusal }: { directory: Directory; refusal: string }) {
  const { t } = useTranslation();
  const files = useRef<HTMLInputElement>(null);
  const tree = useRef<HTMLInputElement | null>(null);
  const onChange = ({ target }: { target: HTMLInputElement }) => {
    addUploads(directory, chosenFiles(target.files ?? []));
    target.value = '';
  };
  return (
    <>
      <input ref={files} type="file" multiple hidden onChange={onChange} data-testid="files" />
      <input
        ref={input => {
          tree.current = input;
          // React has no type for this property.
          input?.setAttribute('webkitdirectory', '');
        }}
        type="file"
        hidden
        onChange={onChange}
      />
      <Tooltip title={refusal}>
        <Button type="primary" disabled={refusal !== ''} onClick={() => files.current?.click()}>
          {t('data.upload')}
        </Button>
      </Tooltip>
      <Tooltip title={refusal}>
        <Button disabled={refusal !== ''} onClick={() => tree.current?.click()}>
          {t('data.upload-directory')}
        </Button>
      </Tooltip>
    </>
  );
}

function NewDirectory({ directory }: { directory: Directory }) {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  const make = useMakeDirectory();
  return (
    <>
      <Button onClick={() => setIsOpen(true)}>{t('data.new-directory')}</Button>
      {isOpen && (
        <NameDialog
          title={t('data.new-directory')}
          label={t('data.name')}
          initial=""
          error={make.error}
          isSaving={make.isPending}
          onClose={() => {
            make.reset();
            setIsOpen(false);
          }}
          onSave={name =>
            make.mutate(
              { id: directory.id, path: joined(directory.path, name) },
              { onSuccess: () => setIsOpen(false) }
            )
          }
        />
      )}
    </>
  );
}

function NewFile(props: { directory: Directory; onCreated: (path: string) => void }) {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  const save = useSaveFile();
  const close = () => {
    save.reset();
    setIsOpen(false);
  };
  return (
    <>
      <Button onClick={() => setIsOpen(true)}>{t('preview.new-file')}</Button>
      {isOpen && (
        <NameDialog
          title={t('preview.new-file')}
          label={t('data.name')}
          initial=""
          error={save.error}
          isSaving={save.isPending}
          onClose={close}
          onSave={name => {
            const path = joined(props.directory.path, name);
            save.mutate(
              { id: props.directory.id, path, text: '', replaces: 'new' },
              {
                onSuccess: () => {
                  close();
                  props.onCreated(path);
                }
              }
            );
          }}
        />
      )}
    </>
  );
}

function RemoveFiles({ id, paths, onDone }: { id: string; paths: string[]; onDone: () => void }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const remove = useRemoveFiles();
  const confirm = () =>
    modal.confirm({
      title: t('data.delete-files', { count: paths.length }),
      content: t('data.delete-help'),
      okText: t('data.delete'),
      okButtonProps: { danger: true },
      onOk: () =>
        remove.mutateAsync({ id, paths }).then(onDone, (error: unknown) => {
          void message.error(error instanceof Error ? error.message : '');
        })
    });
  return (
    <Button danger onClick={() => void confirm()} loading={remove.isPending}>
      {t('data.selected', { action: t('data.delete'), count: paths.length })}
    </Button>
  );
}
