import { App, Button, Progress } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { useCancelPull } from '../../data/cluster/imagePulls';
import type { Item } from '../../data/entities';

const STATUSES = ['pending', 'pulling', 'done', 'failed', 'cancelled'] as const;
const PROGRESS_STATUS = { done: 'success', failed: 'exception' } as const;
const REFRESH_MILLIS = 15_000;

/** Pulls of images to agents. */
export const PULLS: Entity = {
  name: 'image-pulls',
  path: '/image-pulls',
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'image', isSortable: true },
    { key: 'agent_id', isSortable: true },
    { key: 'resource_group', isSortable: true },
    { key: 'status', isSortable: true, render: pull => <PullProgress pull={pull} /> },
    { key: 'message', hasSentences: true },
    { key: 'requested_by', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true },
    { key: 'cancel', render: pull => <CancelPull pull={pull} /> }
  ],
  filters: [
    { key: 'image__contains' },
    { key: 'agent_id' },
    { key: 'resource_group' },
    { key: 'status', choices: STATUSES.map(value => ({ value, label: value })) }
  ],
  fields: [],
  writers: ['superadmin'],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

function PullProgress({ pull }: { pull: Item }) {
  const { t } = useTranslation();
  const status = String(pull['status']);
  return (
    <div style={{ minWidth: 120 }}>
      {t(`image-pulls.status-${status}`, status)}
      {(status === 'pulling' || status === 'done' || status === 'failed') && (
        <Progress
          size="small"
          percent={Number(pull['percent'] ?? 0)}
          status={status === 'pulling' ? 'active' : PROGRESS_STATUS[status]}
          aria-label={t(`image-pulls.status-${status}`, status)}
        />
      )}
    </div>
  );
}

function CancelPull({ pull }: { pull: Item }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const cancel = useCancelPull();
  if (pull['status'] !== 'pending' && pull['status'] !== 'pulling') {
    return null;
  }
  return (
    <Button
      size="small"
      loading={cancel.isPending}
      onClick={() =>
        cancel.mutate(String(pull['id']), { onError: error => void message.error(error.message) })
      }
    >
      {t('image-pulls.cancel')}
    </Button>
  );
}
