import { useState } from 'react';
import { App, Checkbox, Flex, Segmented, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ReferenceSelect } from '../../components/entities/FieldControl';
import { entityQuery, useSaveEntity, type Item } from '../../data/entities';
import { changedHosts, grantedOn, PERMISSIONS } from './permissions';

const GRANTERS = {
  domain: { path: '/domains', name: 'name', id: 'name' },
  project: { path: '/projects', name: 'name', id: 'id' },
  policy: { path: '/keypair-policies', name: 'name', id: 'name' }
} as const;
type Granter = keyof typeof GRANTERS;

interface HostPermissionsProps {
  host: string;
  isWriter: boolean;
}

/** The permissions that a domain, a project or a keypair policy grants on a storage host. */
export function HostPermissions({ host, isWriter }: HostPermissionsProps) {
  const { t } = useTranslation();
  const [granter, setGranter] = useState<Granter>('domain');
  const [key, setKey] = useState<string>();
  const { path, id } = GRANTERS[granter];
  const found = useQuery({ ...entityQuery(path, id, key ?? ''), enabled: key !== undefined });
  const domain = granter === 'project' ? found.data?.['domain'] : undefined;
  const inherited = useQuery({
    ...entityQuery('/domains', 'name', String(domain)),
    enabled: domain !== undefined
  });
  return (
    <section aria-label={t('storage-hosts.granted')}>
      <Typography.Title level={5}>{t('storage-hosts.granted')}</Typography.Title>
      <Typography.Paragraph type="secondary">
        {t('storage-hosts.granted-help')}
      </Typography.Paragraph>
      <Flex wrap gap="small" style={{ marginBottom: 8 }}>
        <Segmented
          value={granter}
          aria-label={t('storage-hosts.granter')}
          options={(Object.keys(GRANTERS) as Granter[]).map(value => ({
            value,
            label: t(`storage-hosts.granter-${value}`)
          }))}
          onChange={value => {
            setGranter(value);
            setKey(undefined);
          }}
        />
        <ReferenceSelect
          key={granter}
          of={GRANTERS[granter]}
          value={key ?? null}
          onChange={setKey}
          aria-label={t('storage-hosts.granter-name')}
          style={{ minWidth: 220, flex: 1 }}
        />
      </Flex>
      {key !== undefined && found.data && (
        <PermissionList
          key={key}
          host={host}
          item={found.data}
          itemKey={key}
          path={path}
          inherited={domain === undefined ? [] : grantedOn(inherited.data, host)}
          isWriter={isWriter}
        />
      )}
    </section>
  );
}

interface PermissionListProps extends HostPermissionsProps {
  item: Item;
  itemKey: string;
  path: (typeof GRANTERS)[Granter]['path'];
  /** Permissions that the project's domain grants already. */
  inherited: readonly string[];
}

function PermissionList({ host, item, inherited, isWriter, ...props }: PermissionListProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const save = useSaveEntity(props.path);
  const granted = grantedOn(item, host);
  const set = (permission: string, isGranted: boolean) =>
    save.mutate(
      { key: props.itemKey, values: changedHosts(item, host, permission, isGranted) },
      { onError: error => void message.error(error.message) }
    );
  return (
    <Flex vertical gap={4}>
      {PERMISSIONS.map(permission => (
        <Checkbox
          key={permission}
          disabled={!isWriter || save.isPending}
          checked={granted.includes(permission)}
          onChange={event => set(permission, event.target.checked)}
        >
          {t(`storage-hosts.${permission}`)}{' '}
          {inherited.includes(permission) && <Tag>{t('storage-hosts.by-domain')}</Tag>}
        </Checkbox>
      ))}
    </Flex>
  );
}
