import { lazy, useState, type MouseEvent } from 'react';
import { App, Grid, Layout } from 'antd';
import { Outlet } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { LazyDialog } from '../components/LazyDialog';
import { useConnection } from '../data/connection';
import { changePreferences } from '../data/accounts/preferences';
import { loadScript } from '../data/scripts';
import { Banners } from './Banners';
import { Breadcrumbs } from './Breadcrumbs';
import { CommandPalette } from './palette/CommandPalette';
import { ConnectionNotice } from './ConnectionNotice';
import { Header } from './Header';
import { Navigation } from './Navigation';
import { PasswordBar } from './PasswordBar';
import { SignedOut } from './SignedOut';
import { SignInDialog } from './SignInDialog';
import { useSidebar } from './sidebar';
import { useLiveNotices } from './notices/useLiveNotices';
import { focusWarnings } from './notices/useStopWarnings';

const SIDEBAR_WIDTH = 208;
const MenuDrawer = lazy(() =>
  loadScript(() => import('./MenuDrawer')).then(module => ({ default: module.MenuDrawer }))
);

/** Focus the content: the browser would resolve the link against <base> and leave the page. */
function skipToContent(event: MouseEvent) {
  event.preventDefault();
  document.getElementById('content')?.focus();
}

function skipToWarnings(event: MouseEvent) {
  event.preventDefault();
  focusWarnings();
}

/**
 * Header, sidebar and content of every page. If the user may not use them any more, `SignedOut`
 * replaces them. Notices are rendered inside the router, because they contain links.
 */
export function Shell() {
  const { state, reason } = useConnection();
  return (
    <App>
      {reason ? <SignedOut reason={reason} /> : <Frame />}
      {state === 'signed-out' && !reason && <SignInDialog />}
    </App>
  );
}

/** On narrow screens, the sidebar is in a drawer. */
function Frame() {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().lg ?? true;
  const isCollapsed = useSidebar();
  const [isMenuOpen, setIsMenuOpen] = useState(false);
  const hasWarnings = useLiveNotices();

  return (
    <Layout style={{ minHeight: '100vh' }}>
      <a className="bai-skip" href="#content" onClick={skipToContent}>
        {t('shell.skip')}
      </a>
      {hasWarnings && (
        <a className="bai-skip" href="#warnings" onClick={skipToWarnings}>
          {t('shell.skip-to-warnings')}
        </a>
      )}
      <Header hasMenuButton={!isWide} onMenu={() => setIsMenuOpen(true)} />
      <Layout>
        {isWide ? (
          <Layout.Sider
            className="bai-sidebar"
            theme="light"
            width={SIDEBAR_WIDTH}
            collapsible
            collapsed={isCollapsed}
            onCollapse={isSidebarCompact => changePreferences({ isSidebarCompact })}
          >
            <Navigation />
          </Layout.Sider>
        ) : (
          <LazyDialog isOpen={isMenuOpen}>
            <MenuDrawer
              isOpen={isMenuOpen}
              onClose={() => setIsMenuOpen(false)}
              width={SIDEBAR_WIDTH + 48}
            />
          </LazyDialog>
        )}
        <Layout.Content id="content" tabIndex={-1} className="bai-page">
          <ConnectionNotice />
          <PasswordBar />
          <Banners />
          <Breadcrumbs />
          <Outlet />
        </Layout.Content>
      </Layout>
      <CommandPalette />
    </Layout>
  );
}
