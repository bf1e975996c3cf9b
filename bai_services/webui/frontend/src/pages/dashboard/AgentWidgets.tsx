import { Flex, Statistic, Table, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { labelKey } from '../../components/entities/entity';
import { readEntitySearch } from '../../components/entities/search';
import { showValue } from '../../components/entities/showValue';
import { ScrollArea } from '../../components/ScrollArea';
import { agentTotalsQuery } from '../../data/cluster/cluster';
import { entitiesQuery, type Item } from '../../data/entities';
import { AGENTS, Allocation } from '../agents/agents';
import { Widget, WIDGET_REFRESH_MILLIS } from './Widget';

const MAX_AGENTS = 10;

/** Used and total resources of all agents that are alive. */
export function AgentStatistics() {
  const { t } = useTranslation();
  const totals = useQuery({ ...agentTotalsQuery, refetchInterval: WIDGET_REFRESH_MILLIS });
  return (
    <Widget
      title={t('dashboard.agent-statistics')}
      help={t('dashboard.help-agent-statistics')}
      query={totals}
    >
      {({ agents, schedulable_agents: schedulable, slots, used }) => (
        <>
          <Flex wrap gap="large" style={{ marginBottom: 12 }}>
            <Statistic title={t('dashboard.agents-alive')} value={agents} />
            <Statistic title={t('dashboard.agents-schedulable')} value={schedulable} />
          </Flex>
          <Allocation agent={{ slots, used }} />
        </>
      )}
    </Widget>
  );
}

/** The first `MAX_AGENTS` agents that are alive, with their allocated resources. */
export function ActiveAgents() {
  const { t } = useTranslation();
  const list = { limit: MAX_AGENTS, offset: 0, sort: 'id', filters: { status: 'ALIVE' } };
  const agents = useQuery({
    ...entitiesQuery('/agents', list),
    refetchInterval: WIDGET_REFRESH_MILLIS
  });
  const title = t('dashboard.active-agents');
  const search = (item: Item) => readEntitySearch({ item: item['id'] });
  return (
    <Widget
      title={title}
      help={t('dashboard.help-active-agents')}
      query={agents}
      extra={<Link to="/agents">{t('dashboard.all-agents')}</Link>}
    >
      {({ items }) => (
        <ScrollArea label={title}>
          <Table<Item>
            rowKey="id"
            size="small"
            pagination={false}
            dataSource={[...items]}
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
