import { Alert, Empty, Skeleton, Tag, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { imageAgentsQuery } from '../../data/cluster/imagePulls';
import type { Item } from '../../data/entities';
import { hasChangedTag } from './imageDigests';

/** The agents that have an image, and a warning if its tag has moved in the registry. */
export function ImageAgents({ image }: { image: Item }) {
  const { t } = useTranslation();
  const found = useQuery(imageAgentsQuery(String(image['id'])));
  return (
    <section aria-label={t('images.on-agents')}>
      <Typography.Title level={5}>{t('images.on-agents')}</Typography.Title>
      {hasChangedTag(image) && (
        <Alert
          type="warning"
          showIcon
          style={{ marginBottom: 12 }}
          title={t('images.tag-changed')}
          description={
            <code style={{ overflowWrap: 'anywhere' }}>{String(image['registry_digest'])}</code>
          }
        />
      )}
      {found.isPending && <Skeleton active paragraph={{ rows: 2 }} title={false} />}
      {found.error && <ErrorNotice error={found.error} onRetry={() => void found.refetch()} />}
      {found.data?.items.length === 0 && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('images.on-no-agent')} />
      )}
      {found.data?.items.map(agent => (
        <div key={agent.agent_id} style={{ marginBottom: 4, overflowWrap: 'anywhere' }}>
          {agent.agent_id} · {agent.resource_group}{' '}
          {agent.is_current === false && <Tag color="orange">{t('images.other-version')}</Tag>}
        </div>
      ))}
    </section>
  );
}
