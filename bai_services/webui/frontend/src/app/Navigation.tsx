import { Menu } from 'antd';
import { Link, useLocation } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { PAGES } from './pages';

/** The sidebar's links; `onNavigate` is called when one is used. */
export function Navigation({ onNavigate }: { onNavigate?: () => void }) {
  const { t } = useTranslation();
  const { pathname } = useLocation();
  const current = PAGES.find(page => pathname.startsWith(page.path));
  return (
    <nav aria-label={t('shell.pages')}>
      <Menu
        mode="inline"
        selectedKeys={current ? [current.path] : []}
        style={{ borderInlineEnd: 0 }}
        items={PAGES.map(page => ({
          key: page.path,
          icon: page.icon,
          label: (
            <Link to={page.path} {...(onNavigate ? { onClick: onNavigate } : {})}>
              {t(page.title)}
            </Link>
          )
        }))}
      />
    </nav>
  );
}
