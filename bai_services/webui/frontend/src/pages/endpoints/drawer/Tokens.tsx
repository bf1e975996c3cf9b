import { useState } from 'react';
import { Alert, App, Button, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../../components/entities/entity';
import { EntityList } from '../../../components/entities/EntityList';
import {
  REFRESH_MILLIS,
  useRevokeToken,
  type EndpointToken
} from '../../../data/serving/endpoints';
import type { Item } from '../../../data/entities';
import { useRights } from '../rights';
import type { EndpointTabProps } from './EndpointDrawer';

const DAYS = [7, 30, 90];

const tokensOf = (key: string, isOwner: boolean): Entity => ({
  name: 'endpoint-tokens',
  path: `/endpoints/${key}/tokens`,
  id: 'id',
  defaultSort: 'name',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'name', isSortable: true },
    { key: 'expires_at', isSortable: true },
    { key: 'requests' },
    { key: 'input_tokens' },
    { key: 'output_tokens' },
    { key: 'last_used_at' },
    { key: 'requests_per_minute', isOptional: true },
    { key: 'max_concurrent', isOptional: true },
    { key: 'networks', isOptional: true },
    { key: 'author', isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true },
    { key: 'actions', render: item => <Revoke endpoint={key} token={tokenOf(item)} /> }
  ],
  filters: [],
  fields: [
    { key: 'name', kind: 'text', isRequired: true },
    { key: 'expires_at', kind: 'time', isNullable: true, days: DAYS },
    { key: 'requests_per_minute', kind: 'number', isNullable: true },
    { key: 'max_concurrent', kind: 'number', isNullable: true },
    { key: 'networks', kind: 'words' }
  ],
  writers: isOwner ? ['user', 'admin', 'superadmin'] : [],
  canCreate: true,
  canDelete: false,
  hasNoDetails: true
});

const tokenOf = (item: Item) => item as unknown as EndpointToken;

/** The tokens of an endpoint. Only the owner creates tokens; administrators may revoke them. */
export function Tokens({ endpoint, search, onChange }: EndpointTabProps) {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const { isOwner } = useRights(endpoint);
  const [entity] = useState(() => tokensOf(endpoint.id, isOwner));
  return (
    <>
      {endpoint.is_public && (
        <Alert
          type="info"
          showIcon
          title={t('endpoint-tokens.not-needed')}
          style={{ marginBottom: 12 }}
        />
      )}
      <EntityList
        entity={entity}
        search={search.list ?? {}}
        onSearch={changes => onChange({ list: { ...search.list, ...changes } })}
        onCreated={item =>
          void modal.success({
            title: t('endpoint-tokens.created'),
            content: <NewToken token={String(item['token'])} />
          })
        }
      />
    </>
  );
}

/** A new token; the server returns it only once. */
function NewToken({ token }: { token: string }) {
  const { t } = useTranslation();
  return (
    <>
      <Alert type="warning" showIcon title={t('endpoint-tokens.once')} />
      <Typography.Paragraph copyable code style={{ marginTop: 12, overflowWrap: 'anywhere' }}>
        {token}
      </Typography.Paragraph>
    </>
  );
}

function Revoke({ endpoint, token }: { endpoint: string; token: EndpointToken }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const revoke = useRevokeToken(endpoint);
  const { id, name } = token;
  const confirm = () =>
    void modal.confirm({
      title: t('endpoint-tokens.revoke-title', { name }),
      content: t('endpoint-tokens.revoke-warning'),
      okText: t('endpoint-tokens.revoke'),
      okButtonProps: { danger: true },
      onOk: async () => {
        try {
          await revoke.mutateAsync(id);
        } catch (error) {
          void message.error((error as Error).message);
        }
      }
    });
  return (
    <Button
      danger
      size="small"
      onClick={confirm}
      aria-label={t('endpoint-tokens.revoke-one', { name })}
    >
      {t('endpoint-tokens.revoke')}
    </Button>
  );
}
