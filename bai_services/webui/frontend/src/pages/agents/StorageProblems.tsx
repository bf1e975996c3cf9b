import { Alert, Flex } from 'antd';
import { useTranslation } from 'react-i18next';
import { Tag } from '../../components/Tag';
import type { Item } from '../../data/entities';
import { isConnected, storageProblemsOf } from './facts';

/** The storage hosts that do not work on the machine of a connected agent, as tags. */
export function StorageTags({ agent }: { agent: Item }) {
  const { t } = useTranslation();
  const problems = isConnected(agent) ? storageProblemsOf(agent) : [];
  return (
    <Flex wrap gap={4}>
      {problems.map(([host, problem]) => (
        <Tag key={host} color="orange">
          {host}: {t(`agents.storage-${problem}`)}
        </Tag>
      ))}
    </Flex>
  );
}

/** Which storage hosts do not work on the machine of a connected agent, and the effect. */
export function StorageAlerts({ agent }: { agent: Item }) {
  const { t } = useTranslation();
  const problems = isConnected(agent) ? storageProblemsOf(agent) : [];
  return problems.map(([name, problem]) => (
    <Alert
      key={name}
      type="warning"
      showIcon
      title={t('agents.storage-problem', { name, problem: t(`agents.storage-${problem}`) })}
      description={t('agents.storage-effect')}
      style={{ marginTop: 12 }}
    />
  ));
}
