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

/** Warning that a connected agent has no free subnet for networks of sessions, with the effect. */
export function NetworkAlert({ agent }: { agent: Item }) {
  const { t } = useTranslation();
  return isConnected(agent) && agent['is_network_full'] ? (
    <Alert
      type="warning"
      showIcon
      title={t('agents.network-full')}
      description={t('agents.network-full-effect')}
      style={{ marginTop: 12 }}
    />
  ) : null;
}

/** The same warning as a tag. */
export function NetworkTag({ agent }: { agent: Item }) {
  const { t } = useTranslation();
  return isConnected(agent) && agent['is_network_full'] ? (
    <Tag color="orange">{t('agents.network-full')}</Tag>
  ) : null;
}
