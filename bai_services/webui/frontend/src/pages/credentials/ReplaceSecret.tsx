import { App, Button } from 'antd';
import { useTranslation } from 'react-i18next';
import { SecretKey } from '../../components/SecretKey';
import { useSaveEntity, type Item } from '../../data/entities';

/** Replace the secret key of a keypair; the new key is shown only once. */
export function ReplaceSecret({ keypair }: { keypair: Item }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const save = useSaveEntity('/keypairs');
  const key = String(keypair['access_key']);
  const replace = async () => {
    try {
      const changed = await save.mutateAsync({ key, values: { new_secret: true } });
      void modal.success({
        title: t('keypairs.replaced'),
        content: <SecretKey access_key={key} secret_key={String(changed['secret_key'])} />
      });
    } catch (error) {
      void message.error((error as Error).message);
    }
  };
  return (
    <Button
      loading={save.isPending}
      onClick={() =>
        void modal.confirm({
          title: t('keypairs.replace-title', { name: key }),
          content: t('keypairs.replace-warning'),
          okText: t('keypairs.replace'),
          onOk: () => void replace()
        })
      }
    >
      {t('keypairs.replace')}
    </Button>
  );
}
