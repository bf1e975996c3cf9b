import { Descriptions, Drawer, Grid, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatTime } from '../../components/time';
import { folderQuery, type Folder } from '../../data/folders';
import { FolderActions } from './FolderActions';
import { FolderOwner, FolderStatus } from './FolderList';

const WIDTH = 720;

/** One folder beside the list. */
export function FolderDrawer({ id, onClose }: { id: string | undefined; onClose: () => void }) {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().md ?? true;
  const folder = useQuery({ ...folderQuery(id ?? ''), enabled: id !== undefined });
  const shown = folder.data?.id === id ? folder.data : undefined;
  return (
    <Drawer
      open={id !== undefined}
      onClose={onClose}
      size={isWide ? WIDTH : '100%'}
      title={shown?.name ?? t('data.folder')}
      extra={shown && <FolderActions folder={shown} />}
      destroyOnHidden
    >
      {folder.error && <ErrorNotice error={folder.error} onRetry={() => void folder.refetch()} />}
      {!shown && !folder.error && <Skeleton active />}
      {shown && <FolderFacts folder={shown} />}
    </Drawer>
  );
}

function FolderFacts({ folder }: { folder: Folder }) {
  const { t, i18n } = useTranslation();
  const rows = [
    { key: 'status', children: <FolderStatus folder={folder} /> },
    { key: 'owner', children: <FolderOwner folder={folder} /> },
    { key: 'host', children: folder.host },
    { key: 'permission', children: folder.permission && t(`permissions.${folder.permission}`) },
    { key: 'mount-permission', children: t(`permissions.${folder.mount_permission}`) },
    { key: 'usage-mode', children: t(`data.usage-${folder.usage_mode}`) },
    {
      key: 'used',
      children:
        folder.used_bytes === null
          ? t('data.not-counted')
          : formatBytes(folder.used_bytes, i18n.language)
    },
    { key: 'cloneable', children: folder.cloneable && t('data.yes') },
    { key: 'created-at', children: formatTime(folder.created_at, i18n.language) },
    { key: 'id', children: <Typography.Text copyable>{folder.id}</Typography.Text> }
  ];
  return (
    <Descriptions
      size="small"
      column={1}
      items={rows
        .filter(({ children }) => children)
        .map(row => ({ ...row, label: t(`data.${row.key}`) }))}
    />
  );
}
