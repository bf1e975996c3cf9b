import { Button } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { NotificationText } from '../../app/notices/NotificationText';
import { EntityPage } from '../../components/entities/EntityPage';
import type { Entity } from '../../components/entities/entity';
import type { Item } from '../../data/entities';
import { EVENT_NAMES, useMarkAllRead, useMarkRead } from '../../data/notifications';

const REFRESH_MILLIS = 60_000;

const NOTIFICATIONS: Entity = {
  name: 'notifications',
  path: '/notifications',
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'created_at', isSortable: true },
    { key: 'event', isSortable: true },
    { key: 'text', hasSentences: true, render: item => <NotificationText item={item} /> },
    { key: 'is_urgent', isOptional: true },
    { key: 'is_read', render: item => <ReadState item={item} /> }
  ],
  filters: [
    { key: 'is_read', choices: ['true', 'false'].map(value => ({ value, label: value })) },
    { key: 'event', choices: EVENT_NAMES.map(value => ({ value, label: value })) }
  ],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

/** The user's notifications of the last 30 days. */
export function NotificationsPage() {
  const { t } = useTranslation();
  const markAll = useMarkAllRead();
  return (
    <EntityPage
      path="/notifications"
      title="pages.notifications"
      entities={[NOTIFICATIONS]}
      tools={
        <>
          <Button loading={markAll.isPending} onClick={() => markAll.mutate()}>
            {t('notifications.mark-all')}
          </Button>
          <Link to="/settings" search={{ tab: 'notifications' }}>
            {t('notifications.choose')}
          </Link>
        </>
      }
    />
  );
}

function ReadState({ item }: { item: Item }) {
  const { t } = useTranslation();
  const markRead = useMarkRead();
  return item['is_read'] ? (
    t('entities.yes')
  ) : (
    <Button
      size="small"
      loading={markRead.isPending}
      onClick={() => markRead.mutate(String(item['id']))}
    >
      {t('notifications.mark')}
    </Button>
  );
}
