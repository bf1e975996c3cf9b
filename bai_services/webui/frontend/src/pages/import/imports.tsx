import { App, Button, Flex, Progress } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import type { Entity } from '../../components/entities/entity';
import { meQuery } from '../../data/accounts/me';
import type { Item } from '../../data/entities';
import { hasEnded, useCancelFolderImport, type FolderImport } from '../../data/imports';
import { reasonText } from '../../i18n/reasonText';
import { visible } from '../../i18n/userText';

const STATUSES = ['queued', 'running', 'done', 'failed', 'cancelled'] as const;
const PROGRESS_STATUS = { running: 'active', done: 'success', failed: 'exception' } as const;
const REFRESH_MILLIS = 5_000;

const importOf = (item: Item) => item as unknown as FolderImport;

/** The user's imports into folders; administrators see those of their domain. */
export const IMPORTS: Entity = {
  name: 'folder-imports',
  path: '/folder-imports',
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'source', isSortable: true },
    { key: 'folder', isSortable: true },
    { key: 'status', isSortable: true, render: item => <ImportState made={importOf(item)} /> },
    { key: 'actions', render: item => <Actions made={importOf(item)} /> },
    { key: 'branch', isOptional: true },
    { key: 'commit_id', isOptional: true },
    { key: 'owner', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true }
  ],
  filters: [
    { key: 'status', choices: STATUSES.map(value => ({ value, label: value })) },
    { key: 'source__contains' },
    { key: 'owner__contains' }
  ],
  fields: [],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

/** The status of an import with its progress, or why it has failed. */
export function ImportState({ made }: { made: FolderImport }) {
  const { t, i18n } = useTranslation();
  const { status, bytes, total_bytes: total } = made;
  const label = t(`folder-imports.status-${status}`, status);
  const percent = status === 'done' ? 100 : Math.min(99, (100 * bytes) / Math.max(total, 1));
  return (
    <div style={{ minWidth: 160 }} role="status">
      {label}
      {status in PROGRESS_STATUS && (
        <Progress
          size="small"
          percent={Math.floor(percent)}
          status={PROGRESS_STATUS[status as keyof typeof PROGRESS_STATUS]}
          aria-label={label}
        />
      )}
      {bytes > 0 && <div>{formatBytes(bytes, i18n.language)}</div>}
      {made.problem && (
        <div>{reasonText(i18n, { message: visible(made.problem), coded: made.problem_coded })}</div>
      )}
    </div>
  );
}

function Actions({ made }: { made: FolderImport }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const cancel = useCancelFolderImport();
  const isAdmin = me?.role === 'admin' || me?.role === 'superadmin';
  const isOwn = me?.id === made.owner_id;
  const onError = (error: Error) => void message.error(error.message);
  return (
    <Flex gap="small">
      {isOwn && made.status === 'done' && made.folder_id && (
        <Link to="/import" search={{ item: made.id }}>
          {t('folder-imports.start')}
        </Link>
      )}
      {!hasEnded(made) && (isAdmin || isOwn) && (
        <Button
          size="small"
          loading={cancel.isPending}
          onClick={() => cancel.mutate(made.id, { onError })}
        >
          {t('folder-imports.cancel')}
        </Button>
      )}
    </Flex>
  );
}
