import { useState } from 'react';
import { Flex, Input, Segmented, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatBytes } from '../../components/bytes';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import { hostScopesQuery, type QuotaScope } from '../../data/folders/storage';
import { QuotaForm } from './QuotaForm';

const PAGE_SIZE = 10;
const OWNERS = ['owner', 'project'] as const;

interface HostQuotasProps {
  host: string;
  isWriter: boolean;
}

/** Usage and limit of each user or project on a storage host. */
export function HostQuotas({ host, isWriter }: HostQuotasProps) {
  const { t, i18n } = useTranslation();
  const [owners, setOwners] = useState<(typeof OWNERS)[number]>('owner');
  const [name, setName] = useState('');
  const [page, setPage] = useState(1);
  const scopes = useQuery(
    hostScopesQuery(host, owners, name, { limit: PAGE_SIZE, offset: (page - 1) * PAGE_SIZE })
  );
  const bytes = (value: number | null, none: string) =>
    value === null ? t(none) : formatBytes(value, i18n.language);
  return (
    <section aria-label={t('quota-scopes.title')}>
      <Typography.Title level={5}>{t('quota-scopes.title')}</Typography.Title>
      {scopes.data?.items.some(scope => !scope.is_enforced) && (
        <Typography.Paragraph type="secondary">
          {t('quota-scopes.not-enforced')}
        </Typography.Paragraph>
      )}
      <Flex wrap gap="small" style={{ marginBottom: 8 }}>
        <Segmented
          value={owners}
          aria-label={t('quota-scopes.owners')}
          options={OWNERS.map(value => ({ value, label: t(`quota-scopes.owners-${value}`) }))}
          onChange={value => {
            setOwners(value);
            setPage(1);
          }}
        />
        <Input.Search
          style={{ width: 220 }}
          placeholder={t('quota-scopes.find')}
          aria-label={t('quota-scopes.find')}
          allowClear
          onSearch={text => {
            setName(text.trim());
            setPage(1);
          }}
        />
      </Flex>
      {scopes.error && <ErrorNotice error={scopes.error} />}
      <ScrollArea label={t('quota-scopes.title')}>
        <CardTable<QuotaScope>
          rowKey="scope"
          size="small"
          loading={scopes.isPending}
          dataSource={scopes.data?.items ?? []}
          locale={{ emptyText: t('quota-scopes.none') }}
          pagination={{
            current: page,
            pageSize: PAGE_SIZE,
            total: scopes.data?.total ?? 0,
            hideOnSinglePage: true,
            onChange: setPage
          }}
          columns={[
            { key: 'name', title: t(`quota-scopes.${owners}`), dataIndex: owners },
            {
              key: 'used',
              title: t('quota-scopes.used-bytes'),
              render: (_, { used_bytes: used }) => bytes(used, 'quota-scopes.not-counted')
            },
            {
              key: 'limit',
              title: t('quota-scopes.limit-bytes'),
              render: (_, { limit_bytes: limit }) => bytes(limit, 'quota-scopes.no-limit')
            },
            {
              key: 'edit',
              title: '',
              render: (_, scope) => isWriter && <QuotaForm scope={scope} />
            }
          ]}
        />
      </ScrollArea>
    </section>
  );
}
