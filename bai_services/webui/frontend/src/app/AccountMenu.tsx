import { lazy, useState } from 'react';
import { UserOutlined } from '@ant-design/icons';
import { Button, Dropdown, type MenuProps } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link, useLocation } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { config } from '../config';
import { LazyDialog } from '../components/LazyDialog';
import { personal } from '../components/personal';
import { meQuery } from '../data/accounts/me';
import { loadScript } from '../data/scripts';
import { manualUrl } from './pages';
import { useThemeMode, type ThemeMode } from './theme';
import { isolated } from '../i18n/userText';
import { onMenuKeyDown } from '../components/menuKeys';

const About = lazy(() =>
  loadScript(() => import('./About')).then(module => ({ default: module.About }))
);
export const THEME_MODES: readonly ThemeMode[] = ['system', 'light', 'dark'];
const HUB_ADMINS: readonly string[] = ['admin', 'superadmin', 'monitor'];

/** Menu of the account: user, settings, theme, links to the Hub, version, and sign-out. */
export function AccountMenu({ hasName }: { hasName: boolean }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { mode, choose } = useThemeMode();
  const path = useLocation({ select: location => location.pathname });
  const [isAboutOpen, setIsAboutOpen] = useState(false);
  const items: MenuProps['items'] = [
    ...(me
      ? [
          {
            key: 'who',
            type: 'group' as const,
            label: (
              <>
                <div>
                  {me.full_name
                    ? `${isolated(personal(me.full_name))} (${personal(me.username)})`
                    : personal(me.username)}
                </div>
                <div>{personal(me.email)}</div>
                <div>{`${t(`roles.${me.role}`)} · ${me.domain}`}</div>
              </>
            )
          }
        ]
      : []),
    { key: 'settings', label: <Link to="/settings">{t('pages.settings')}</Link> },
    {
      key: 'theme',
      label: t('shell.theme'),
      children: THEME_MODES.map(key => ({
        key: `theme-${key}`,
        label: t(`shell.theme-${key}`),
        onClick: () => choose(key)
      }))
    },
    { type: 'divider' },
    { key: 'hub', label: <a href={`${config.hub}home`}>{t('shell.hub-home')}</a> },
    { key: 'token', label: <a href={`${config.hub}token`}>{t('shell.tokens')}</a> },
    ...(me && HUB_ADMINS.includes(me.role)
      ? [{ key: 'admin', label: <a href={`${config.hub}admin`}>{t('shell.hub-admin')}</a> }]
      : []),
    { type: 'divider' },
    {
      key: 'manual',
      label: (
        <a href={manualUrl(path)} target="_blank" rel="noreferrer">
          {t('shell.manual')}
        </a>
      )
    },
    { key: 'about', label: t('about.title'), onClick: () => setIsAboutOpen(true) },
    { key: 'logout', label: <a href={`${config.hub}logout`}>{t('shell.sign-out')}</a> }
  ];
  return (
    <>
      <Dropdown
        autoFocus
        trigger={['click']}
        menu={{
          onKeyDown: onMenuKeyDown,
          items,
          selectable: true,
          selectedKeys: [`theme-${mode}`]
        }}
      >
        <Button
          type="text"
          icon={<UserOutlined />}
          aria-label={me ? `${t('shell.account')}: ${personal(me.username)}` : t('shell.account')}
        >
          {hasName && personal(me?.username ?? '')}
        </Button>
      </Dropdown>
      <LazyDialog isOpen={isAboutOpen}>
        <About isOpen={isAboutOpen} onClose={() => setIsAboutOpen(false)} />
      </LazyDialog>
    </>
  );
}
