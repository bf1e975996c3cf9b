import { Tabs, Typography } from 'antd';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { SessionSetup } from '../../components/setup/SessionSetup';
import { Accesses } from './Accesses';
import { Account } from './Account';
import { Keypairs } from './Keypairs';
import { Notifications } from './Notifications';
import { Preferences } from './Preferences';
import { Requests } from './Requests';
import { readSettingsSearch, TABS, type SettingsSearch, type Tab } from './search';
import { SignIns } from './SignIns';
import { SshKeys } from './SshKeys';

const route = getRouteApi('/settings');

/** Preferences in this browser, the user's account and keys, and the log of API requests. */
export function SettingsPage() {
  const { t } = useTranslation();
  const { tab = 'preferences', find = '' } = route.useSearch();
  const navigate = route.useNavigate();
  const change = (changes: SettingsSearch, replace = false) =>
    void navigate({ search: old => readSettingsSearch({ ...old, ...changes }), replace });
  const search = { find, onFind: (text: string) => change({ find: text }, true) };
  const contents: Record<Tab, React.ReactNode> = {
    preferences: <Preferences {...search} />,
    account: <Account />,
    'ssh-keys': <SshKeys />,
    keypairs: <Keypairs />,
    'sign-ins': <SignIns />,
    notifications: <Notifications />,
    setup: <SessionSetup isWritable />,
    accesses: <Accesses />,
    requests: <Requests {...search} />
  };
  return (
    <>
      <Typography.Title level={3} style={{ marginTop: 0 }}>
        {t('pages.settings')}
      </Typography.Title>
      <Tabs
        activeKey={tab}
        onChange={key => void navigate({ search: readSettingsSearch({ tab: key }) })}
        items={TABS.map(key => ({
          key,
          label: t(`settings.tab-${key}`),
          children: contents[key]
        }))}
        destroyOnHidden
      />
    </>
  );
}
