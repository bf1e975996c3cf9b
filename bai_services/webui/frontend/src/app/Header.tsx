import { GlobalOutlined, MenuOutlined, SearchOutlined } from '@ant-design/icons';
import { Button, Dropdown, Flex, Grid, Layout, theme } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { config } from '../config';
import { chooseLanguage, LANGUAGES, type Language } from '../i18n';
import { AccountMenu } from './AccountMenu';
import { HelpButton } from './HelpButton';
import { NoticesButton } from './notices/NoticesButton';
import { openPalette } from './palette/paletteState';
import { ProjectSwitch } from './ProjectSwitch';
import { onMenuKeyDown } from '../components/menuKeys';

export function Header(props: { hasMenuButton: boolean; onMenu: () => void }) {
  const { t, i18n } = useTranslation();
  const { token } = theme.useToken();
  const isWide = Grid.useBreakpoint().md ?? true;
  return (
    <Layout.Header
      className={props.hasMenuButton ? '' : 'bai-fixed-header'}
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
          {config.logo ? (
            <img src={config.logo} alt={config.brand} className="bai-logo" />
          ) : (
            config.brand
          )}
        </Link>
        <span style={{ flex: 1 }} />
        <ProjectSwitch hasName={isWide} />
        <Button
          icon={<SearchOutlined />}
          onClick={openPalette}
          {...(isWide ? {} : { 'aria-label': t('palette.open') })}
        >
          {isWide && <span style={{ color: token.colorTextDescription }}>{t('palette.hint')}</span>}
        </Button>
        <Dropdown
          autoFocus
          trigger={['click']}
          menu={{
            onKeyDown: onMenuKeyDown,
            selectable: true,
            selectedKeys: [i18n.language],
            items: Object.entries(LANGUAGES).map(([key, label]) => ({ key, label })),
            onClick: ({ key }) => void chooseLanguage(key as Language)
          }}
        >
          <Button type="text" icon={<GlobalOutlined />} aria-label={t('shell.language')} />
        </Dropdown>
        {isWide && <HelpButton />}
        <NoticesButton />
        <AccountMenu hasName={isWide} />
      </Flex>
    </Layout.Header>
  );
}
