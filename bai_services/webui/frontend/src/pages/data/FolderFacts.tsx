import { Descriptions, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { formatTime } from '../../components/time';
import type { Folder } from '../../data/folders/folders';
import { FolderOwner, FolderStatus, purgeTime } from './FolderList';

/** Owner, state and settings of a folder. */
export function FolderFacts({ folder }: { folder: Folder }) {
  const { t, i18n } = useTranslation();
  const rows = [
    { key: 'status', children: <FolderStatus folder={folder} /> },
    { key: 'purge-at', children: purgeTime(folder, t, i18n.language) },
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
