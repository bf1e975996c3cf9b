import { useState } from 'react';
import { MoreOutlined } from '@ant-design/icons';
import { App, Button, Dropdown } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import {
  useFolderStep,
  useStopSharing,
  type Folder,
  type FolderStep
} from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';
import { ChangeFolder, CloneFolder, PurgeFolder, TransferFolder } from './FolderDialogs';
import { ShareFolder } from './ShareFolder';
import { useTrashFolder } from './useTrashFolder';
import { onMenuKeyDown } from '../../components/menuKeys';

const DIALOGS = {
  share: ShareFolder,
  change: ChangeFolder,
  clone: CloneFolder,
  transfer: TransferFolder,
  purge: PurgeFolder
} as const;
type DialogName = keyof typeof DIALOGS;
type Action = DialogName | 'trash' | 'restore' | 'leave';

/** The actions that the user may perform on the folder in its current status. */
export function actionsFor(folder: Folder, isSuperadmin: boolean): Action[] {
  if (folder.status === 'delete-pending') {
    return folder.is_managed ? ['restore', 'purge'] : [];
  }
  if (folder.status === 'delete-error') {
    return folder.is_managed ? ['purge'] : [];
  }
  if (folder.status === 'error') {
    return folder.is_managed ? ['trash'] : [];
  }
  if (folder.status !== 'ready') {
    return [];
  }
  return [
    ...(folder.is_managed ? (['share', 'change'] as const) : []),
    ...(folder.cloneable ? (['clone'] as const) : []),
    ...(isSuperadmin && folder.owner_id ? (['transfer'] as const) : []),
    ...(folder.relation === 'shared' ? (['leave'] as const) : []),
    ...(folder.is_managed ? (['trash'] as const) : [])
  ];
}

export function FolderActions({ folder }: { folder: Folder }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const step = useFolderStep();
  const leave = useStopSharing();
  const trash = useTrashFolder();
  const [open, setOpen] = useState<DialogName>();
  const actions = actionsFor(folder, me?.role === 'superadmin');
  const Dialog = open && DIALOGS[open];

  const run = async (name: FolderStep) => {
    const failures = await step.mutateAsync({ folders: [folder], step: name });
    failures.forEach(({ error }) => void message.error(error.message));
  };
  const choose = (action: Action) => {
    if (action === 'trash') {
      trash(folder);
    } else if (action === 'leave') {
      modal.confirm({
        title: t('data.leave-one', { name: folder.name }),
        content: t('data.leave-help'),
        okText: t('data.leave'),
        onOk: () =>
          leave
            .mutateAsync({ id: folder.id, user: me?.id ?? '' })
            .catch(
              (error: unknown) => void message.error(error instanceof Error ? error.message : '')
            )
      });
    } else if (action === 'restore') {
      void run(action);
    } else {
      setOpen(action);
    }
  };
  if (actions.length === 0) {
    return null;
  }
  return (
    <>
      <Dropdown
        autoFocus
        trigger={['click']}
        menu={{
          onKeyDown: onMenuKeyDown,
          items: actions.map(key => ({
            key,
            label: t(`data.${key}`),
            danger: key === 'purge' || key === 'trash'
          })),
          onClick: ({ key }) => choose(key as Action)
        }}
      >
        <Button
          type="text"
          icon={<MoreOutlined />}
          loading={step.isPending}
          aria-label={t('data.actions', { name: folder.name })}
        />
      </Dropdown>
      {Dialog && <Dialog folder={folder} onClose={() => setOpen(undefined)} />}
    </>
  );
}
