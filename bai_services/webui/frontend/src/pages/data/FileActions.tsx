import { useState } from 'react';
import { MoreOutlined } from '@ant-design/icons';
import { App, Button, Dropdown } from 'antd';
import { useTranslation } from 'react-i18next';
import {
  downloadUrl,
  joined,
  useCopyFile,
  useMoveFile,
  useRemoveFiles,
  type Directory,
  type FileEntry
} from '../../data/folders/files';
import { NameDialog } from './NameDialog';
import { onMenuKeyDown } from '../../components/menuKeys';

interface FileActionsProps {
  directory: Directory;
  entry: FileEntry;
  canWrite: boolean;
}

export function FileActions({ directory, entry, canWrite }: FileActionsProps) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const [open, setOpen] = useState<'move' | 'copy'>();
  const remove = useRemoveFiles();
  const path = joined(directory.path, entry.name);
  const confirmDelete = () =>
    modal.confirm({
      title: t('data.delete-file', { name: entry.name }),
      content: t('data.delete-help'),
      okText: t('data.delete'),
      okButtonProps: { danger: true },
      onOk: () =>
        remove.mutateAsync({ id: directory.id, paths: [path] }).catch((error: unknown) => {
          void message.error(error instanceof Error ? error.message : '');
        })
    });
  const items = [
    {
      key: 'download',
      label: (
        <a href={downloadUrl(directory.id, [{ path, type: entry.type }])} download>
          {t('data.download')}
        </a>
      )
    },
    ...(canWrite
      ? [
          { key: 'move', label: t('data.move'), onClick: () => setOpen('move') },
          { key: 'copy', label: t('data.copy'), onClick: () => setOpen('copy') },
          {
            key: 'delete',
            label: t('data.delete'),
            danger: true,
            onClick: () => void confirmDelete()
          }
        ]
      : [])
  ];
  return (
    <>
      <Dropdown autoFocus trigger={['click']} menu={{ onKeyDown: onMenuKeyDown, items }}>
        <Button
          type="text"
          size="small"
          icon={<MoreOutlined />}
          aria-label={t('data.actions', { name: entry.name })}
        />
      </Dropdown>
      {open && (
        <Relocate kind={open} id={directory.id} path={path} onClose={() => setOpen(undefined)} />
      )}
    </>
  );
}

/** Rename, move or copy: the target is a path in the folder. */
function Relocate(props: { kind: 'move' | 'copy'; id: string; path: string; onClose: () => void }) {
  const { t } = useTranslation();
  const move = useMoveFile();
  const copy = useCopyFile();
  const change = props.kind === 'move' ? move : copy;
  return (
    <NameDialog
      title={t(`data.${props.kind}`)}
      label={t('data.target-path')}
      initial={props.path}
      error={change.error}
      isSaving={change.isPending}
      onClose={props.onClose}
      onSave={target =>
        change.mutate({ id: props.id, source: props.path, target }, { onSuccess: props.onClose })
      }
    />
  );
}
