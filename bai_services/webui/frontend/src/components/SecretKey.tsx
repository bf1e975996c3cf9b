import { Alert, Descriptions, Typography } from 'antd';
import { useTranslation } from 'react-i18next';

/** A keypair with its new secret key, which is shown only once. */
export function SecretKey(props: { access_key: string; secret_key: string }) {
  const { t } = useTranslation();
  return (
    <>
      <Alert
        type="warning"
        showIcon
        title={t('keypairs.secret-once')}
        style={{ marginBottom: 12 }}
      />
      <Descriptions
        size="small"
        column={1}
        items={[
          {
            key: 'access',
            label: t('keypairs.access-key'),
            children: <Typography.Text copyable>{props.access_key}</Typography.Text>
          },
          {
            key: 'secret',
            label: t('keypairs.secret-key'),
            children: <Typography.Text copyable>{props.secret_key}</Typography.Text>
          }
        ]}
      />
    </>
  );
}
