import { App } from 'antd';
import { useTranslation } from 'react-i18next';
import { EntityPage } from '../../components/entities/EntityPage';
import { SecretKey } from '../../components/SecretKey';
import { KEYPAIRS } from './keypairs';

/** Keypairs of all users. */
export function CredentialsPage() {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  return (
    <EntityPage
      path="/credentials"
      title="pages.credentials"
      entities={[KEYPAIRS]}
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
