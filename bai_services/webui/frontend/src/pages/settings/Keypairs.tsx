import { App, Button, Flex, Popconfirm, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import { SecretKey } from '../../components/SecretKey';
import { formatTime } from '../../components/time';
import { ownKeypairsQuery, useChangeKeypair, type Keypair } from '../../data/accounts/account';
import { meQuery } from '../../data/accounts/me';

/** The user's keypairs: activate, deactivate, replace the secret key. */
export function Keypairs() {
  const { t, i18n } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const keypairs = useQuery({
    ...ownKeypairsQuery(me?.username ?? ''),
    enabled: me !== undefined
  });
  return (
    <>
      <Typography.Paragraph type="secondary">{t('settings.keypairs-help')}</Typography.Paragraph>
      {keypairs.error && (
        <ErrorNotice error={keypairs.error} onRetry={() => void keypairs.refetch()} />
      )}
      <ScrollArea label={t('settings.tab-keypairs')}>
        <CardTable<Keypair>
          rowKey="access_key"
          size="middle"
          loading={keypairs.isPending}
          pagination={false}
          dataSource={keypairs.data ?? []}
          columns={[
            {
              key: 'access_key',
              title: t('keypairs.access-key'),
              render: (_, { access_key, is_main }) => (
                <Flex gap="small" align="center">
                  <Typography.Text copyable>{access_key}</Typography.Text>
                  {is_main && <Tag color="blue">{t('keypairs.is-main')}</Tag>}
                </Flex>
              )
            },
            {
              key: 'active',
              title: t('keypairs.is-active'),
              render: (_, { is_active }) => t(is_active ? 'entities.yes' : 'entities.no')
            },
            {
              key: 'policy',
              title: t('keypairs.resource-policy'),
              dataIndex: 'resource_policy'
            },
            { key: 'rate', title: t('keypairs.rate-limit'), dataIndex: 'rate_limit' },
            {
              key: 'used',
              title: t('keypairs.last-used'),
              render: (_, { last_used }) => (last_used ? formatTime(last_used, i18n.language) : '–')
            },
            {
              key: 'actions',
              title: '',
              render: (_, keypair) => <KeypairActions keypair={keypair} />
            }
          ]}
        />
      </ScrollArea>
    </>
  );
}

function KeypairActions({ keypair }: { keypair: Keypair }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const change = useChangeKeypair();
  const { access_key: key, is_active: isActive } = keypair;
  const onError = (error: Error) => void message.error(error.message);
  const renew = () =>
    change.mutate(
      { key, change: { new_secret: true } },
      {
        onError,
        onSuccess: ({ secret_key }) =>
          void modal.success({
            title: t('settings.secret-replaced'),
            content: <SecretKey access_key={key} secret_key={secret_key ?? ''} />
          })
      }
    );
  const toggle = () => change.mutate({ key, change: { is_active: !isActive } }, { onError });
  return (
    <Flex wrap gap="small">
      <Popconfirm title={t('settings.new-secret-warning')} onConfirm={renew}>
        <Button size="small">{t('settings.new-secret')}</Button>
      </Popconfirm>
      {isActive ? (
        <Popconfirm title={t('settings.deactivate-warning')} onConfirm={toggle}>
          <Button size="small">{t('settings.deactivate')}</Button>
        </Popconfirm>
      ) : (
        <Button size="small" onClick={toggle}>
          {t('settings.activate')}
        </Button>
      )}
    </Flex>
  );
}
