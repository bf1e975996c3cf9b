import { useState } from 'react';
import { Flex, Select, Switch } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { personal } from '../../components/personal';
import { meQuery } from '../../data/accounts/me';
import { entitiesQuery } from '../../data/entities';
import { Field, idOf } from './Field';
import { useLauncher } from './launcherContext';

const MAX_CHOICES = 20;
const ADMINS: readonly string[] = ['admin', 'superadmin'];

/** The owner of the session: administrators can create sessions for other users. */
export function OwnerField() {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { form, change } = useLauncher();
  const [isForOther, setForOther] = useState(false);
  // A link can set an owner even if the user may not choose one: the field then shows the error.
  const isOpen = isForOther || form.owner !== '';
  if (!isOpen && !ADMINS.includes(me?.role ?? '')) {
    return null;
  }
  // Projects, folders and sessions depend on the owner, so clear them.
  const choose = (owner: string) =>
    change({ owner, project: '', resource_group: '', mounts: [], dependencies: [] });
  const toggle = (isOn: boolean) => {
    setForOther(isOn);
    if (!isOn && form.owner) {
      choose('');
    }
  };
  return (
    <>
      <Flex gap="small" align="center" style={{ marginBlockEnd: 12 }}>
        <Switch id="launch-for-other" checked={isOpen} onChange={toggle} />
        <label htmlFor="launch-for-other">{t('launcher.for-other')}</label>
      </Flex>
      {isOpen && (
        <Field name="owner" label={t('launcher.owner')} help={t('launcher.owner-help')}>
          <OwnerSelect value={form.owner} onChoose={choose} />
        </Field>
      )}
    </>
  );
}

/** The server searches by e-mail address if the text contains `@`, else by user name. */
function OwnerSelect(props: { value: string; onChoose: (owner: string) => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState('');
  const found = useQuery(
    entitiesQuery('/users', {
      limit: MAX_CHOICES,
      offset: 0,
      sort: 'username',
      filters: {
        status: 'active',
        ...(text ? { [text.includes('@') ? 'email__contains' : 'username__contains']: text } : {})
      }
    })
  );
  return (
    <Select
      id={idOf('owner')}
      showSearch={{ filterOption: false, onSearch: setText }}
      loading={found.isPending}
      placeholder={t('launcher.owner-placeholder')}
      {...(props.value ? { value: props.value } : {})}
      onChange={props.onChoose}
      options={(found.data?.items ?? []).map(({ username, email }) => ({
        value: String(username),
        label: `${String(username)} (${personal(String(email))})`
      }))}
    />
  );
}
