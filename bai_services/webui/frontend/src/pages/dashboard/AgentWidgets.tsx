import { Flex, Statistic, Typography } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { labelKey } from '../../components/entities/entity';
import { readEntitySearch } from '../../components/entities/search';
import { showValue } from '../../components/entities/showValue';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import type { Item } from '../../data/entities';
import { AGENTS, Allocation } from '../agents/agents';
import { Widget, type DashboardResult } from './Widget';

/** Used and total resources of all agents that are alive. */
export function AgentStatistics({ query }: { query: DashboardResult }) {
  const { t } = useTranslation();
  return (
    <Widget
      title={t('dashboard.agent-statistics')}
      help={t('dashboard.help-agent-statistics')}
      query={query}
    >
      {({ agent_totals: totals }) =>
        totals && (
          <>
            <Flex wrap gap="large" style={{ marginBottom: 12 }}>
              <Statistic title={t('dashboard.agents-alive')} value={totals.agents} />
              <Statistic
                title={t('dashboard.agents-schedulable')}
                value={totals.schedulable_agents}
              />
            </Flex>
            <Allocation agent={{ slots: totals.slots, used: totals.used }} />
          </>
        )
      }
    </Widget>
  );
}

/** The first agents that are alive, with their allocated resources. */
export function ActiveAgents({ query }: { query: DashboardResult }) {
  const { t } = useTranslation();
  const title = t('dashboard.active-agents');
  const search = (item: Item) => readEntitySearch({ item: item['id'] });
  return (
    <Widget
      title={title}
      help={t('dashboard.help-active-agents')}
      query={query}
      extra={<Link to="/agents">{t('dashboard.all-agents')}</Link>}
    >
      {({ agents }) => (
        <ScrollArea label={title}>
          <CardTable<Item>
            rowKey="id"
            size="small"
            pagination={false}
            dataSource={[...(agents ?? [])]}
            locale={{ emptyText: <Typography.Text>{t('entities.none')}</Typography.Text> }}
            columns={AGENTS.columns.map((column, index) => ({
              key: column.key,
              title: t(labelKey(AGENTS, column.key)),
              render: (_: unknown, item: Item) =>
                index === 0 ? (
                  <Link to="/agents" search={search(item)}>
                    {String(item['id'])}
                  </Link>
                ) : (
                  showValue(item[column.key], column, item, AGENTS.name)
                )
            }))}
          />
        </ScrollArea>
      )}
    </Widget>
  );
}
