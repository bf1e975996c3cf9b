import { Badge, Flex, Tag } from 'antd';
import i18next from 'i18next';
import { useTranslation } from 'react-i18next';
import { numberOf, shortAmount } from '../../components/amount';
import type { Activation, Entity } from '../../components/entities/entity';
import { formatSeconds, formatTime, useNow } from '../../components/time';
import type { Item } from '../../data/entities';
import {
  deviceMemory,
  devicesOf,
  deviceUtilization,
  factsOf,
  isConnected,
  percentOf
} from './facts';
import { Meter } from './Meter';
import { NetworkTag, StorageTags } from './StorageProblems';

type Slots = Record<string, string>;

const REFRESH_MILLIS = 15_000;
const STATUSES = ['ALIVE', 'LOST', 'TERMINATED'];

const COLORS: Record<string, 'success' | 'error' | 'warning' | 'default'> = {
  ALIVE: 'success',
  LOST: 'error',
  TERMINATED: 'default'
};

const SCHEDULABLE: Activation = { key: 'schedulable', on: true, off: false };

/** Used amount and capacity of each slot of an agent, with a bar. */
export function Allocation({ agent }: { agent: Item }) {
  const slots = (agent['slots'] ?? {}) as Slots;
  const used = (agent['used'] ?? {}) as Slots;
  return (
    <>
      {Object.entries(slots).map(([slot, capacity]) => {
        const amount = used[slot] ?? '0';
        const percent = percentOf(numberOf(amount), numberOf(capacity));
        const amounts = `${shortAmount(slot, amount)} / ${shortAmount(slot, capacity)}`;
        return (
          <Meter key={slot} label={slot} percent={percent} text={`${amounts} (${percent} %)`} />
        );
      })}
    </>
  );
}

/** Current load of the machine: CPU, memory and accelerators. */
function CurrentLoad({ agent }: { agent: Item }) {
  const { t } = useTranslation();
  const { load } = factsOf(agent);
  const utilization = deviceUtilization(devicesOf(agent));
  const memory = deviceMemory(devicesOf(agent));
  if (!isConnected(agent) || load === undefined) {
    return '–';
  }
  return (
    <>
      {load.cpu_percent !== null && (
        <Meter label={t('agents.cpu')} percent={Math.round(load.cpu_percent)} />
      )}
      <Meter
        label={t('agents.memory')}
        percent={percentOf(load.memory_used_bytes, load.memory_bytes)}
      />
      {utilization !== undefined && <Meter label={t('agents.gpu')} percent={utilization} />}
      {memory && (
        <Meter label={t('agents.gpu-memory')} percent={percentOf(memory.used, memory.total)} />
      )}
    </>
  );
}

function Disk({ agent }: { agent: Item }) {
  const { t } = useTranslation();
  const { load } = factsOf(agent);
  return load?.disk_bytes && load.disk_used_bytes !== null ? (
    <Meter label={t('agents.disk')} percent={percentOf(load.disk_used_bytes, load.disk_bytes)} />
  ) : (
    '–'
  );
}

/** When the agent was started, and for how long it has been running. */
function Started({ agent }: { agent: Item }) {
  const { t, i18n } = useTranslation();
  const now = useNow(REFRESH_MILLIS);
  const { started_at: begin } = factsOf(agent);
  if (begin === undefined) {
    return '–';
  }
  const seconds = (now - Date.parse(begin)) / 1000;
  return (
    <>
      <span className="bai-nowrap">{formatTime(begin, i18n.language)}</span>
      {isConnected(agent) && (
        <>
          <br />
          <small>
            {t('agents.uptime', { time: formatSeconds(Math.max(0, seconds), i18n.language) })}
          </small>
        </>
      )}
    </>
  );
}

/** Architecture, engine, version of the agent and families of accelerators. */
function Tags({ agent }: { agent: Item }) {
  const families = devicesOf(agent).map(({ family }) => family);
  const words = [agent['architecture'], agent['engine'], agent['version'], ...families];
  return (
    <Flex wrap gap={4}>
      {[...new Set(words.map(String))].map(word => (
        <Tag key={word} style={{ marginInlineEnd: 0 }}>
          {word}
        </Tag>
      ))}
    </Flex>
  );
}

/** The agent's Docker endpoint; for an agent without Docker, the name of the machine. */
function endpointOf(agent: Item): string {
  const { endpoint } = agent;
  return typeof endpoint === 'string' && endpoint ? endpoint : (factsOf(agent).hostname ?? '–');
}

const VIEWS = [
  { name: 'connected', filter: 'status', value: 'ALIVE' },
  { name: 'terminated', filter: 'status__in', value: 'LOST,TERMINATED' }
];

export const AGENTS: Entity = {
  name: 'agents',
  path: '/agents',
  id: 'id',
  defaultSort: 'id',
  refreshMillis: REFRESH_MILLIS,
  drawerWidth: 900,
  columns: [
    { key: 'id', isSortable: true },
    {
      key: 'endpoint',
      isSortable: true,
      isOptional: true,
      render: agent => endpointOf(agent)
    },
    {
      key: 'status',
      isSortable: true,
      render: agent => (
        <>
          <Badge
            className="bai-nowrap"
            status={COLORS[String(agent['status'])] ?? 'warning'}
            text={i18next.t(`agents.status-${String(agent['status'])}`)}
          />
          <StorageTags agent={agent} />
          <NetworkTag agent={agent} />
        </>
      )
    },
    { key: 'schedulable', isSortable: true },
    { key: 'resource_group', isSortable: true },
    { key: 'started_at', isOptional: true, render: agent => <Started agent={agent} /> },
    { key: 'allocation', render: agent => <Allocation agent={agent} /> },
    { key: 'load', render: agent => <CurrentLoad agent={agent} /> },
    { key: 'disk', render: agent => <Disk agent={agent} /> },
    { key: 'kernels' },
    { key: 'tags', isOptional: true, render: agent => <Tags agent={agent} /> },
    { key: 'last_heartbeat_at', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'id__contains' },
    { key: 'endpoint__contains' },
    { key: 'schedulable', choices: ['true', 'false'].map(value => ({ value, label: value })) },
    { key: 'resource_group' },
    { key: 'status', choices: STATUSES.map(value => ({ value, label: value })) }
  ],
  fields: [
    { key: 'schedulable', kind: 'switch', only: 'change' },
    {
      key: 'resource_group',
      kind: 'reference',
      of: { path: '/resource-groups', name: 'name' },
      isRequired: true,
      only: 'change'
    }
  ],
  writers: ['superadmin'],
  canCreate: false,
  canDelete: true,
  isDeletable: agent => !isConnected(agent),
  views: VIEWS,
  activation: SCHEDULABLE
};

/** The list of agents for users: without controls, and without the load of the machines. */
export const AGENT_SUMMARIES: Entity = {
  name: 'agents',
  path: '/agent-summaries',
  canCreate: false,
  id: 'id',
  defaultSort: 'id',
  columns: [
    { key: 'id', isSortable: true },
    { key: 'architecture' },
    { key: 'allocation', render: agent => <Allocation agent={agent} /> },
    { key: 'resource_group', isSortable: true },
    { key: 'schedulable', isSortable: true }
  ],
  filters: [
    { key: 'id__contains' },
    { key: 'schedulable', isFlag: true },
    { key: 'resource_group' }
  ],
  fields: [],
  writers: [],
  canDelete: false,
  hasNoDetails: true,
  views: VIEWS
};
