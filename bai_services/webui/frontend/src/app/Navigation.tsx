import { useEffect, useRef, useState } from 'react';
import { Menu } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link, useLocation } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../data/accounts/me';
import { changePreferences, usePreferences } from '../data/accounts/preferences';
import { pagesFor } from './pages';
import { ADMINISTRATION, openGroups } from './sidebar';

/** The sidebar's links; `onNavigate` is called when the user clicks one. */
export function Navigation({ onNavigate }: { onNavigate?: () => void }) {
  const { t } = useTranslation();
  const { pathname } = useLocation();
  const { data: me } = useQuery(meQuery);
  const pages = pagesFor(me?.role).filter(page => !page.isInAccountMenu);
  const current = pages.find(page => pathname.startsWith(page.path));
  // Scroll to the current page: the sidebar of an administrator is longer than most windows, and
  // has its own scroll position (style.css).
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    nav.current?.querySelector('.ant-menu-item-selected')?.scrollIntoView({ block: 'nearest' });
  }, [current]);
  const items = (ofAdministrators: boolean) =>
    pages
      .filter(page => (page.roles !== undefined) === ofAdministrators)
      .map(page => ({
        key: page.path,
        icon: page.icon,
        label: (
          <Link to={page.path} {...(onNavigate ? { onClick: onNavigate } : {})}>
            {t(page.title)}
          </Link>
        )
      }));
  const administration = items(true);
  const { closedGroups, isSidebarCompact } = usePreferences();
  // The path of the page on which the user has closed its group.
  const [closedOn, setClosedOn] = useState<string>();
  const place = current && { path: current.path, group: current.roles ? ADMINISTRATION : '' };
  const isCompact = isSidebarCompact && !onNavigate;
  const onOpenChange = (open: string[]) => {
    changePreferences({ closedGroups: open.includes(ADMINISTRATION) ? [] : [ADMINISTRATION] });
    setClosedOn(current?.path);
  };
  return (
    <nav ref={nav} aria-label={t('shell.pages')}>
      <Menu
        mode="inline"
        selectedKeys={current ? [current.path] : []}
        style={{ borderInlineEnd: 0 }}
        // In the compact sidebar, a group has no title and is always open.
        {...(isCompact
          ? {}
          : { openKeys: openGroups(closedGroups, place, closedOn), onOpenChange })}
        items={[
          ...items(false),
          ...(administration.length > 0
            ? [
                {
                  key: ADMINISTRATION,
                  ...(isCompact ? { type: 'group' as const } : {}),
                  label: t('shell.administration'),
                  children: administration
                }
              ]
            : [])
        ]}
      />
    </nav>
  );
}
