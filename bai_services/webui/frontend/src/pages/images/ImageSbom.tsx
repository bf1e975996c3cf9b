import { useState } from 'react';
import { Alert, Button, Flex, Input, Table, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { imageSbomQuery } from '../../data/cluster/imageSboms';
import type { Item } from '../../data/entities';

const LABEL = 'org.bai.sbom';

/** The packages of an image that has an SBOM. They are read on an agent when the user asks. */
export function ImageSbom({ image }: { image: Item }) {
  const { t } = useTranslation();
  const [isShown, setShown] = useState(false);
  const [search, setSearch] = useState('');
  const found = useQuery({ ...imageSbomQuery(String(image['id'])), enabled: isShown });
  if (!((image['labels'] as Record<string, string> | undefined) ?? {})[LABEL]) {
    return null;
  }
  const sbom = found.data;
  const words = search.trim().toLowerCase();
  return (
    <section aria-label={t('images.sbom')}>
      <Typography.Title level={5}>{t('images.sbom')}</Typography.Title>
      {!sbom && (
        <Button
          loading={found.isFetching}
          onClick={() => (isShown ? void found.refetch() : setShown(true))}
        >
          {t('images.sbom-show')}
        </Button>
      )}
      {found.error && <ErrorNotice error={found.error} onRetry={() => void found.refetch()} />}
      {sbom && (
        <Flex vertical gap="small">
          <Typography.Text type="secondary">
            {t('images.sbom-facts', {
              format: sbom.format,
              version: sbom.spec_version,
              packages: sbom.packages.length,
              agent: sbom.agent_id
            })}
          </Typography.Text>
          {sbom.is_of_base && <Alert type="info" showIcon title={t('images.sbom-of-base')} />}
          <Flex wrap gap="small">
            <Input
              allowClear
              style={{ width: 240 }}
              value={search}
              onChange={event => setSearch(event.target.value)}
              placeholder={t('images.sbom-search')}
              aria-label={t('images.sbom-search')}
            />
            <Button onClick={() => save(sbom.image, sbom.document)}>
              {t('images.sbom-download')}
            </Button>
          </Flex>
          <Table
            size="small"
            rowKey={item => `${item.kind}/${item.name}/${item.version}`}
            dataSource={sbom.packages.filter(item => item.name.toLowerCase().includes(words))}
            pagination={{ pageSize: 20, showSizeChanger: false, hideOnSinglePage: true }}
            columns={[
              { title: t('images.sbom-package'), dataIndex: 'name' },
              { title: t('images.sbom-version'), dataIndex: 'version' },
              { title: t('images.sbom-kind'), dataIndex: 'kind' }
            ]}
            scroll={{ x: true }}
          />
        </Flex>
      )}
    </section>
  );
}

function save(image: string, document_: unknown) {
  const blob = new Blob([JSON.stringify(document_, null, 1)], { type: 'application/json' });
  const url = URL.createObjectURL(blob);
  const link = document.createElement('a');
  link.href = url;
  link.download = `${image.replaceAll(/[^a-zA-Z0-9._-]+/g, '_')}.json`;
  link.click();
  URL.revokeObjectURL(url);
}
