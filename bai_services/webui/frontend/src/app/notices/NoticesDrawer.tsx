import { Button, Drawer, Empty, Flex, Progress, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { StatusTag } from '../../components/StatusTag';
import { formatTime } from '../../components/time';
import { foldersQuery } from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';
import type { Item } from '../../data/entities';
import { unreadNotificationsQuery, useMarkAllRead, useMarkRead } from '../../data/notifications';
import { sessionsQuery } from '../../data/sessions/sessions';
import { useUploads } from '../../data/folders/uploads';
import { NotificationText } from './NotificationText';

const MAX_TASKS = 10;
const STARTING = 'PENDING,SCHEDULED,PREPARING,PREPARED';
const FOLDER_TASKS = 'cloning,performing,delete-ongoing';

/** Running tasks and unread notifications. */
export function NoticesDrawer({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  const unread = useQuery(unreadNotificationsQuery);
  const markAll = useMarkAllRead();
  const items = unread.data?.items ?? [];
  return (
    <Drawer
      open={isOpen}
      onClose={onClose}
      title={t('notices.title')}
      extra={
        items.length > 0 && (
          <Button size="small" loading={markAll.isPending} onClick={() => markAll.mutate()}>
            {t('notifications.mark-all')}
          </Button>
        )
      }
    >
      <Tasks onNavigate={onClose} />
      <Typography.Paragraph>
        <Link to="/notifications" onClick={onClose}>
          {t('notices.all')}
        </Link>
      </Typography.Paragraph>
      {unread.error && <ErrorNotice error={unread.error} onRetry={() => void unread.refetch()} />}
      {unread.data && items.length === 0 && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('notices.none')} />
      )}
      <ul className="bai-notices">
        {items.map(item => (
          <NotificationRow key={String(item['id'])} item={item} onNavigate={onClose} />
        ))}
      </ul>
    </Drawer>
  );
}

function NotificationRow({ item, onNavigate }: { item: Item; onNavigate: () => void }) {
  const { t, i18n } = useTranslation();
  const markRead = useMarkRead();
  return (
    <li>
      <NotificationText item={item} onNavigate={onNavigate} />
      <Flex justify="space-between" gap="small">
        <Typography.Text type="secondary">
          {formatTime(String(item['created_at']), i18n.language)}
        </Typography.Text>
        <Button
          type="link"
          size="small"
          loading={markRead.isPending}
          onClick={() => markRead.mutate(String(item['id']))}
        >
          {t('notifications.mark')}
        </Button>
      </Flex>
    </li>
  );
}

/** Sessions that start, folders that are copied, transferred or deleted, and uploads. */
function Tasks({ onNavigate }: { onNavigate: () => void }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const owner = me?.username ?? '';
  const page = { limit: MAX_TASKS, offset: 0 };
  const sessions = useQuery({
    ...sessionsQuery({
      ...page,
      sort: '-created_at',
      filters: { owner, status__in: STARTING }
    }),
    enabled: me !== undefined
  });
  const folders = useQuery(
    foldersQuery({ ...page, sort: 'name', filters: { status__in: FOLDER_TASKS } })
  );
  const uploads = useUploads();
  const running = uploads.filter(({ state }) => state !== 'done');
  const isBusy =
    running.length > 0 || (sessions.data?.total ?? 0) > 0 || (folders.data?.total ?? 0) > 0;
  if (!isBusy) {
    return null;
  }
  const size = uploads.reduce((sum, upload) => sum + upload.size, 0);
  const sent = uploads.reduce((sum, upload) => sum + upload.sent, 0);
  return (
    <>
      <Typography.Title level={5} style={{ marginTop: 0 }}>
        {t('notices.in-progress')}
      </Typography.Title>
      <ul className="bai-notices">
        {(sessions.data?.items ?? []).map(({ id, name, status }) => (
          <li key={id}>
            <Flex justify="space-between" gap="small">
              <Link to="/sessions" search={{ tab: 'all', session: id }} onClick={onNavigate}>
                {name}
              </Link>
              <StatusTag status={status} />
            </Flex>
          </li>
        ))}
        {(folders.data?.items ?? []).map(({ id, name, status, task }) => (
          <li key={id}>
            <Flex justify="space-between" gap="small">
              <Link to="/data" search={{ folder: id }} onClick={onNavigate}>
                {name}
              </Link>
              {t(`data.status-${status}`)}
            </Flex>
            {task && task.total_bytes > 0 && (
              <Progress
                size="small"
                percent={Math.floor((100 * task.bytes) / task.total_bytes)}
                aria-label={name}
              />
            )}
          </li>
        ))}
        {running.length > 0 && (
          <li>
            {t('data.uploads', { done: uploads.length - running.length, total: uploads.length })}
            <Progress
              size="small"
              percent={size > 0 ? Math.floor((100 * sent) / size) : 0}
              aria-label={t('notices.uploads')}
            />
          </li>
        )}
      </ul>
    </>
  );
}
