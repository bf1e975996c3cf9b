import i18next from 'i18next';
import { App, Button, Progress, Space, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import type { Entity } from '../../components/entities/entity';
import { BuildLog } from './BuildLog';
import { meQuery, useIsReadOnly } from '../../data/accounts/me';
import { useCancelCommit, useRequestPublication } from '../../data/cluster/customImages';
import type { Item } from '../../data/entities';

const STATUSES = [
  'pending',
  'building',
  'committing',
  'pushing',
  'done',
  'failed',
  'cancelled'
] as const;
const OPEN: readonly string[] = ['pending', 'building', 'committing', 'pushing'];
const VISIBILITIES = ['private', 'project', 'public'] as const;
const REFRESH_MILLIS = 10_000;

const isOpen = (item: Item) => OPEN.includes(String(item['status']));

/** Commits of sessions, builds of recipes, and their images. */
export const CUSTOM_IMAGES: Entity = {
  name: 'custom-images',
  path: '/custom-images',
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'name', isSortable: true },
    { key: 'status', isSortable: true, render: item => <CommitState item={item} /> },
    { key: 'visibility', isSortable: true, render: item => <Visibility item={item} /> },
    { key: 'image', isSortable: true, render: item => <ImageName item={item} /> },
    {
      key: 'size_bytes',
      isSortable: true,
      render: item =>
        Number(item['size_bytes']) > 0
          ? formatBytes(Number(item['size_bytes']), i18next.language)
          : '–'
    },
    { key: 'actions', render: item => <Actions item={item} /> },
    { key: 'description', isOptional: true },
    { key: 'is_built', isOptional: true },
    { key: 'base_image', isSortable: true, isOptional: true },
    { key: 'session_name', isSortable: true, isOptional: true },
    { key: 'architecture', isSortable: true, isOptional: true },
    { key: 'owner', isSortable: true, isOptional: true },
    { key: 'project', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'name__contains' },
    { key: 'status', choices: STATUSES.map(value => ({ value, label: value })) },
    { key: 'visibility', choices: VISIBILITIES.map(value => ({ value, label: value })) },
    { key: 'owner__contains' }
  ],
  fields: [
    { key: 'name', kind: 'text', isRequired: true },
    { key: 'description', kind: 'text' },
    { key: 'visibility', kind: 'choice', choices: VISIBILITIES }
  ],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: false,
  canDelete: true,
  isDeletable: item => !isOpen(item)
};

function CommitState({ item }: { item: Item }) {
  const { t } = useTranslation();
  const status = String(item['status']);
  const text = t(`custom-images.status-${status}`, status);
  const percent = item['percent'];
  return (
    <div style={{ minWidth: 110 }}>
      {text}
      {isOpen(item) && typeof percent === 'number' && (
        <Progress size="small" percent={percent} status="active" aria-label={text} />
      )}
      {status === 'failed' && (
        <Typography.Paragraph type="danger" style={{ margin: 0 }}>
          <bdi>{String(item['message'])}</bdi>
        </Typography.Paragraph>
      )}
    </div>
  );
}

function Visibility({ item }: { item: Item }) {
  const { t } = useTranslation();
  const visibility = String(item['visibility']);
  return (
    <>
      {t(`custom-images.visibility-${visibility}`, visibility)}
      {item['is_publish_requested'] === true && (
        <Typography.Text type="secondary">
          {' '}
          {t('custom-images.publication-requested')}
        </Typography.Text>
      )}
    </>
  );
}

function ImageName({ item }: { item: Item }) {
  const image = String(item['image']);
  return item['status'] === 'done' ? (
    <Typography.Text copyable style={{ overflowWrap: 'anywhere' }}>
      {image}
    </Typography.Text>
  ) : (
    '–'
  );
}

/** Start a session with the image, ask for its publication, or cancel the commit. */
function Actions({ item }: { item: Item }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const cancel = useCancelCommit();
  const publish = useRequestPublication();
  const { data: me } = useQuery(meQuery);
  const isReadOnly = useIsReadOnly();
  const id = String(item['id']);
  const onError = (error: Error) => void message.error(error.message);
  const isOwn = item['owner'] === me?.username;
  if (isReadOnly !== false) {
    return null;
  }
  const log = item['is_built'] === true && isOwn && <BuildLog item={item} />;
  if (isOpen(item)) {
    return (
      <Space wrap size="small">
        <Button
          size="small"
          loading={cancel.isPending}
          onClick={() => cancel.mutate(id, { onError })}
        >
          {t('custom-images.cancel')}
        </Button>
        {log}
      </Space>
    );
  }
  if (item['status'] !== 'done') {
    return log || null;
  }
  return (
    <Space wrap size="small">
      {log}
      <Link to="/launch" search={{ request: { image: String(item['image']) } }}>
        {t('custom-images.start')}
      </Link>
      {isOwn && item['visibility'] !== 'public' && item['is_publish_requested'] !== true && (
        <Button
          size="small"
          loading={publish.isPending}
          onClick={() => publish.mutate(id, { onError })}
        >
          {t('custom-images.request-publication')}
        </Button>
      )}
    </Space>
  );
}
