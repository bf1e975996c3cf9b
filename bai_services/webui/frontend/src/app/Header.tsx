import { GlobalOutlined, MenuOutlined, SearchOutlined, UserOutlined } from '@ant-design/icons';
import { Button, Dropdown, Flex, Grid, Layout, Typography, theme, type MenuProps } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { config } from '../config';
import { meQuery } from '../data/me';
import { chooseLanguage, LANGUAGES, type Language } from '../i18n';
import { openPalette } from './paletteState';
import { useThemeMode, type ThemeMode } from './theme';

const THEME_MODES: ThemeMode[] = ['system', 'light', 'dark'];

export function Header(props: { hasMenuButton: boolean; onMenu: () => void }) {
  const { t, i18n } = useTranslation();
  const { token } = theme.useToken();
  const isWide = Grid.useBreakpoint().md ?? true;
  return (
    <Layout.Header
      style={{
        background: token.colorBgContainer,
        borderBottom: `1px solid ${token.colorBorderSecondary}`,
        paddingInline: 16
      }}
    >
      <Flex align="center" gap="small" style={{ height: '100%' }}>
        {props.hasMenuButton && (
          <Button
            type="text"
            icon={<MenuOutlined />}
            aria-label={t('shell.menu')}
            onClick={props.onMenu}
          />
        )}
        <Link to="/start" style={{ color: token.colorText, fontSize: 18, fontWeight: 600 }}>
          {config.brand}
        </Link>
        <span style={{ flex: 1 }} />
        <Button
          icon={<SearchOutlined />}
          onClick={openPalette}
          {...(isWide ? {} : { 'aria-label': t('palette.open') })}
        >
          {isWide && <Typography.Text type="secondary">{t('palette.hint')}</Typography.Text>}
        </Button>
        <Dropdown
          trigger={['click']}
          menu={{
            selectable: true,
            selectedKeys: [i18n.language],
            items: Object.entries(LANGUAGES).map(([key, label]) => ({ key, label })),
            onClick: ({ key }) => void chooseLanguage(key as Language)
          }}
        >
          <Button type="text" icon={<GlobalOutlined />} aria-label={t('shell.language')} />
        </Dropdown>
        <AccountMenu hasName={isWide} />
      </Flex>
    </Layout.Header>
  );
}

function AccountMenu({ hasName }: { hasName: boolean }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { mode, choose } = useThemeMode();
  const items: MenuProps['items'] = [
    ...(me
      ? [
          {
            key: 'who',
            type: 'group' as const,
            label: `${me.username} · ${t(`roles.${me.role}`)} · ${me.domain}`
          }
        ]
      : []),
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
    ...(me && ['admin', 'superadmin', 'monitor'].includes(me.role)
      ? [{ key: 'admin', label: <a href={`${config.hub}admin`}>{t('shell.hub-admin')}</a> }]
      : []),
    { type: 'divider' },
    { key: 'logout', label: <a href={`${config.hub}logout`}>{t('shell.sign-out')}</a> }
  ];
  return (
    <Dropdown
      trigger={['click']}
      menu={{ items, selectable: true, selectedKeys: [`theme-${mode}`] }}
    >
      <Button
        type="text"
        icon={<UserOutlined />}
        aria-label={me ? `${t('shell.account')}: ${me.username}` : t('shell.account')}
      >
        {hasName && me?.username}
      </Button>
    </Dropdown>
  );
}
