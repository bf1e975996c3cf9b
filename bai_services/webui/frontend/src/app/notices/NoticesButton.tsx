import { lazy, useState } from 'react';
import { BellOutlined } from '@ant-design/icons';
import { Badge, Button } from 'antd';
import { useTranslation } from 'react-i18next';
import { LazyDialog } from '../../components/LazyDialog';
import { markRead, useNotices } from '../../data/notices';
import { useShortcut } from '../palette/shortcut';
import { loadScript } from '../../data/scripts';

const NoticesDrawer = lazy(() =>
  loadScript(() => import('./NoticesDrawer')).then(module => ({ default: module.NoticesDrawer }))
);

/** The bell with the number of unread notices; the key `]` opens and closes the list. */
export function NoticesButton() {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  const unread = useNotices().filter(({ isRead }) => !isRead).length;
  const toggle = () => {
    setIsOpen(!isOpen);
    // Closing the list marks all notices as read.
    if (isOpen) {
      markRead();
    }
  };
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
