import { App, Button, Flex, Progress, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { formatBytes } from '../../components/bytes';
import { formatTime } from '../../components/time';
import { meQuery } from '../../data/accounts/me';
import type { Item } from '../../data/entities';
import {
  useApproveImport,
  useCancelImport,
  useRetryImport,
  type ModelImport
} from '../../data/serving/models';
import { reasonText } from '../../i18n/reasonText';
import { visible } from '../../i18n/userText';

const STATUSES = ['requested', 'queued', 'running', 'done', 'failed', 'cancelled'] as const;
const PROGRESS_STATUS = { running: 'active', done: 'success', failed: 'exception' } as const;
const REFRESH_MILLIS = 5_000;

const importOf = (item: Item) => item as unknown as ModelImport;

/** Imports of models: the user's imports, and imports that the user may approve. */
export const IMPORTS: Entity = {
  name: 'model-imports',
  path: '/model-imports',
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'source', isSortable: true },
    { key: 'folder', isSortable: true },
    { key: 'status', isSortable: true, render: item => <State made={importOf(item)} /> },
    { key: 'actions', render: item => <Actions made={importOf(item)} /> },
    { key: 'owner', isSortable: true },
    { key: 'project', isSortable: true, isOptional: true },
    { key: 'revision', isOptional: true },
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

function State({ made }: { made: ModelImport }) {
  const { t, i18n } = useTranslation();
  const { status, bytes, total_bytes: total } = made;
  const label = t(`model-imports.status-${status}`, status);
  const percent = status === 'done' ? 100 : Math.floor((100 * bytes) / Math.max(total, 1));
  return (
    <div style={{ minWidth: made.problem ? 260 : 160 }}>
      {label}
      {status in PROGRESS_STATUS && (
        <Progress
          size="small"
          percent={percent}
          status={PROGRESS_STATUS[status as keyof typeof PROGRESS_STATUS]}
          aria-label={label}
        />
      )}
      {status === 'running' && total > 0 && (
        <div>
          {t('model-imports.progress', {
            files: made.files,
            total: made.total_files,
            bytes: formatBytes(bytes, i18n.language),
            size: formatBytes(total, i18n.language)
          })}
        </div>
      )}
      {made.problem && (
        <div>{reasonText(i18n, { message: visible(made.problem), coded: made.problem_coded })}</div>
      )}
      {made.kept_until && (
        <Typography.Text type="secondary">
          {t('model-imports.kept-until', { time: formatTime(made.kept_until, i18n.language) })}
        </Typography.Text>
      )}
    </div>
  );
}

function Actions({ made }: { made: ModelImport }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const approve = useApproveImport();
  const cancel = useCancelImport();
  const retry = useRetryImport();
  const isAdmin = me?.role === 'admin' || me?.role === 'superadmin';
  const isOpen = ['requested', 'queued', 'running'].includes(made.status);
  const mayChange = isAdmin || me?.id === made.owner_id;
  const onError = (error: Error) => void message.error(error.message);
  return (
    <Flex gap="small">
      {isAdmin && made.status === 'requested' && (
        <Button
          size="small"
          type="primary"
          loading={approve.isPending}
          onClick={() => approve.mutate(made.id, { onError })}
        >
          {t('model-imports.approve')}
        </Button>
      )}
      {made.status === 'failed' && mayChange && (
        <Button
          size="small"
          loading={retry.isPending}
          onClick={() => retry.mutate(made.id, { onError })}
        >
          {t('model-imports.retry')}
        </Button>
      )}
      {isOpen && mayChange && (
        <Button
          size="small"
          loading={cancel.isPending}
          onClick={() => cancel.mutate(made.id, { onError })}
        >
          {t('model-imports.cancel')}
        </Button>
      )}
    </Flex>
  );
}
