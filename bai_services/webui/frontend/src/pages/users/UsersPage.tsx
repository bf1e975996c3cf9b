import { useState } from 'react';
import { App, Button } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { EntityPage } from '../../components/entities/EntityPage';
import { readEntitySearch } from '../../components/entities/search';
import { SecretKey } from '../../components/SecretKey';
import { useUserAction, type Item } from '../../data/entities';
import { meQuery } from '../../data/accounts/me';
import { ImportUsers } from './ImportUsers';
import { InvitationLink } from './InvitationLink';
import { INVITATIONS } from './invitations';
import { NewSeries } from './NewSeries';
import { PurgeUsers } from './PurgeUsers';
import { USERS } from './users';

const PURGEABLE: readonly string[] = ['inactive', 'deleted'];

/** User accounts: create, change, approve, sign out, unlock, reset the authenticator, delete and purge. */
export function UsersPage() {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  return (
    <EntityPage
      path="/users"
      title="pages.users"
      entities={[USERS, INVITATIONS]}
      toolbar={entity => entity === USERS && <SeveralUsers />}
      actions={(entity, user) => entity === USERS && <UserActions user={user} />}
      onCreated={(entity, user) => {
        if (entity === INVITATIONS) {
          void modal.success({
            title: t('sign-up-invitations.created'),
            width: 640,
            content: <InvitationLink token={String(user['token'])} />
          });
          return;
        }
        const keypair = user['keypair'] as { access_key: string; secret_key: string };
        void modal.success({
          title: t('users.created', { name: String(user['username']) }),
          content: <SecretKey {...keypair} />
        });
      }}
    />
  );
}

/** Buttons for creating several users: with numbered names, or from a file. */
function SeveralUsers() {
  const { t } = useTranslation();
  const [open, setOpen] = useState<'series' | 'import'>();
  const close = () => setOpen(undefined);
  return (
    <>
      <Button onClick={() => setOpen('series')}>{t('user-series.title')}</Button>
      <Button onClick={() => setOpen('import')}>{t('user-import.title')}</Button>
      {open === 'series' && <NewSeries onClose={close} />}
      {open === 'import' && <ImportUsers onClose={close} />}
    </>
  );
}

/** Actions for one user; none for monitors, who may only read users. */
function UserActions({ user }: { user: Item }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const { modal, message } = App.useApp();
  const signOut = useUserAction('sign-out');
  const unlock = useUserAction('unlock');
  const reset = useUserAction('reset-authenticator');
  const approve = useUserAction('approve');
  const navigate = useNavigate();
  const search = useSearch({ strict: false });
  const [isPurging, setIsPurging] = useState(false);
  const name = String(user['username']);
  const closePurge = (left: readonly string[]) => {
    setIsPurging(false);
    if (left.length === 0) {
      void navigate({ to: '/users', search: readEntitySearch({ ...search, item: '' }) });
    }
  };
  const notify = (text: string) => void message.success(text);
  const fail = (error: Error) => void message.error(error.message);
  if (!USERS.writers.some(role => role === me?.role)) {
    return null;
  }
  return (
    <>
      {user['awaits_approval'] === true && (
        <Button
          type="primary"
          loading={approve.isPending}
          onClick={() =>
            approve.mutate(name, {
              onSuccess: () => notify(t('users.approved', { name })),
              onError: fail
            })
          }
        >
          {t('users.approve')}
        </Button>
      )}
      {user['is_locked'] === true && (
        <Button
          loading={unlock.isPending}
          onClick={() =>
            unlock.mutate(name, {
              onSuccess: () => notify(t('users.unlocked', { name })),
              onError: fail
            })
          }
        >
          {t('users.unlock')}
        </Button>
      )}
      {user['has_authenticator'] === true && name !== me?.username && (
        <Button
          onClick={() =>
            void modal.confirm({
              title: t('users.reset-authenticator-title', { name }),
              content: t('users.reset-authenticator-warning'),
              okText: t('users.reset-authenticator'),
              onOk: () =>
                reset
                  .mutateAsync(name)
                  .then(() => notify(t('users.authenticator-reset', { name })), fail)
            })
          }
        >
          {t('users.reset-authenticator')}
        </Button>
      )}
      <Button
        onClick={() =>
          void modal.confirm({
            title: t('users.sign-out-title', { name }),
            content: t('users.sign-out-warning'),
            okText: t('users.sign-out'),
            onOk: () =>
              signOut.mutateAsync(name).then(() => notify(t('users.signed-out', { name })), fail)
          })
        }
      >
        {t('users.sign-out')}
      </Button>
      {me?.role === 'superadmin' && PURGEABLE.includes(String(user['status'])) && (
        <Button danger onClick={() => setIsPurging(true)}>
          {t('users.purge')}
        </Button>
      )}
      {isPurging && <PurgeUsers names={[name]} onClose={closePurge} />}
    </>
  );
}
