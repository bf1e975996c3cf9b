import { lazy, useState } from 'react';
import { BellOutlined } from '@ant-design/icons';
import { Badge, Button } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { LazyDialog } from '../../components/LazyDialog';
import { unreadNotificationsQuery } from '../../data/notifications';
import { useShortcut } from '../palette/shortcut';
import { loadScript } from '../../data/scripts';

const NoticesDrawer = lazy(() =>
  loadScript(() => import('./NoticesDrawer')).then(module => ({ default: module.NoticesDrawer }))
);

/** The bell with the number of unread notifications; the key `]` opens and closes the list. */
export function NoticesButton() {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  const unread = useQuery(unreadNotificationsQuery).data?.total ?? 0;
  const toggle = () => setIsOpen(!isOpen);
  useShortcut(']', toggle);
  return (
    <>
      <Badge count={unread} size="small">
        <Button
          type="text"
          icon={<BellOutlined />}
          aria-label={unread > 0 ? t('notices.open-unread', { count: unread }) : t('notices.title')}
          onClick={toggle}
        />
      </Badge>
      <LazyDialog isOpen={isOpen}>
        <NoticesDrawer isOpen={isOpen} onClose={toggle} />
      </LazyDialog>
    </>
  );
}
