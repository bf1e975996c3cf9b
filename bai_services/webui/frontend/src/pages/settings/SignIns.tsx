import { App, Button, Flex, Popconfirm, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import type { TFunction } from 'i18next';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import { ErrorNotice } from '../../components/ErrorNotice';
import { ScrollArea } from '../../components/ScrollArea';
import { formatTime } from '../../components/time';
import {
  signInsQuery,
  useEndOtherSignIns,
  useEndSignIn,
  type SignIn
} from '../../data/accounts/account';
import { programText } from './program';

/** The browsers in which the user is signed in. */
export function SignIns() {
  const { t, i18n } = useTranslation();
  const signIns = useQuery(signInsQuery);
  const time = (at: string | null) => (at ? formatTime(at, i18n.language) : '–');
  const items = signIns.data?.items ?? [];
  return (
    <>
      <Typography.Paragraph type="secondary">{t('settings.sign-ins-help')}</Typography.Paragraph>
      {signIns.error && (
        <ErrorNotice error={signIns.error} onRetry={() => void signIns.refetch()} />
      )}
      <ScrollArea label={t('settings.tab-sign-ins')}>
        <CardTable<SignIn>
          rowKey="id"
          size="middle"
          loading={signIns.isPending}
          pagination={false}
          dataSource={items}
          columns={[
            {
              key: 'browser',
              title: t('settings.browser'),
              render: (_, { program, is_current }) => (
                <Flex gap="small" align="center">
                  {programText(t, program)}
                  {is_current && <Tag color="blue">{t('settings.this-browser')}</Tag>}
                </Flex>
              )
            },
            {
              key: 'address',
              title: t('settings.address'),
              render: (_, { address }) => address || '–'
            },
            {
              key: 'created',
              title: t('settings.signed-in-at'),
              render: (_, { created_at }) => time(created_at)
            },
            {
              key: 'used',
              title: t('settings.last-used'),
              render: (_, { last_used }) => time(last_used)
            },
            {
              key: 'actions',
              title: '',
              render: (_, signIn) => !signIn.is_current && <SignOut signIn={signIn} t={t} />
            }
          ]}
        />
      </ScrollArea>
      {items.some(({ is_current }) => !is_current) && <SignOutOthers />}
    </>
  );
}

function SignOut({ signIn: { id, program, created_at }, t }: { signIn: SignIn; t: TFunction }) {
  const { i18n } = useTranslation();
  const { message } = App.useApp();
  const end = useEndSignIn();
  const name = `${programText(t, program)}, ${formatTime(created_at, i18n.language)}`;
  return (
    <Button
      size="small"
      danger
      aria-label={t('settings.sign-out-of', { name })}
      loading={end.isPending}
      onClick={() =>
        end.mutate(id, {
          onSuccess: () => void message.success(t('settings.signed-out')),
          onError: error => void message.error(error.message)
        })
      }
    >
      {t('settings.sign-out')}
    </Button>
  );
}

function SignOutOthers() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const end = useEndOtherSignIns();
  return (
    <Popconfirm
      title={t('settings.sign-out-others-warning')}
      onConfirm={() =>
        end.mutate(undefined, {
          onSuccess: () => void message.success(t('settings.signed-out')),
          onError: error => void message.error(error.message)
        })
      }
    >
      <Button danger style={{ marginTop: 16 }} loading={end.isPending}>
        {t('settings.sign-out-others')}
      </Button>
    </Popconfirm>
  );
}
