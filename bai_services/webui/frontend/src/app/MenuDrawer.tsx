import { Drawer } from 'antd';
import { useTranslation } from 'react-i18next';
import { Navigation } from './Navigation';

interface MenuDrawerProps {
  isOpen: boolean;
  onClose: () => void;
  /** In pixels. */
  width: number;
}

/** The sidebar on narrow screens. */
export function MenuDrawer({ isOpen, onClose, width }: MenuDrawerProps) {
  const { t } = useTranslation();
  return (
    <Drawer
      open={isOpen}
      onClose={onClose}
      placement="left"
      size={width}
      title={t('shell.menu')}
      styles={{ body: { padding: 0 } }}
    >
      <Navigation onNavigate={onClose} />
    </Drawer>
  );
}
