import { App } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { EntityPage } from '../../components/entities/EntityPage';
import { SecretKey } from '../../components/SecretKey';
import { meQuery } from '../../data/accounts/me';
import { KEYPAIRS } from './keypairs';
import { ReplaceSecret } from './ReplaceSecret';

/** List and change keypairs of users. */
export function CredentialsPage() {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const isWriter = KEYPAIRS.writers.some(role => role === me?.role);
  return (
    <EntityPage
      path="/credentials"
      title="pages.credentials"
      entities={[KEYPAIRS]}
      actions={(_, keypair) => isWriter && <ReplaceSecret keypair={keypair} />}
      onCreated={(_, keypair) =>
        void modal.success({
          title: t('keypairs.created'),
          content: (
            <SecretKey
              access_key={String(keypair['access_key'])}
              secret_key={String(keypair['secret_key'])}
            />
          )
        })
      }
    />
  );
}
