import { Badge, Progress } from 'antd';
import type { Entity } from '../../components/entities/entity';
import { numberOf, shortAmount } from '../../components/amount';
import type { Item } from '../../data/entities';

type Slots = Record<string, string>;

const COLORS: Record<string, 'success' | 'error' | 'warning' | 'default'> = {
  ALIVE: 'success',
  LOST: 'error',
  TERMINATED: 'default'
};

/** Used amount and capacity of each slot of an agent, with a bar. */
function Allocation({ agent }: { agent: Item }) {
  const slots = (agent['slots'] ?? {}) as Slots;
  const used = (agent['used'] ?? {}) as Slots;
  return (
    <div style={{ minWidth: 180 }}>
      {Object.entries(slots).map(([slot, capacity]) => (
        <div key={slot}>
          <small>
            {slot} {shortAmount(slot, used[slot] ?? '0')} / {shortAmount(slot, capacity)}
          </small>
          <Progress
            size="small"
            showInfo={false}
            aria-label={slot}
            percent={(100 * numberOf(used[slot] ?? '0')) / (numberOf(capacity) || 1)}
          />
        </div>
      ))}
    </div>
  );
}

export const AGENTS: Entity = {
  name: 'agents',
  path: '/agents',
  id: 'id',
  defaultSort: 'id',
  columns: [
    { key: 'id', isSortable: true },
    {
      key: 'status',
      isSortable: true,
      render: agent => (
        <Badge
          status={COLORS[String(agent['status'])] ?? 'warning'}
          text={String(agent['status'])}
        />
      )
    },
    { key: 'resource_group', isSortable: true },
    { key: 'allocation', render: agent => <Allocation agent={agent} /> },
    { key: 'kernels' },
    { key: 'schedulable', isSortable: true },
    { key: 'engine', isSortable: true },
    { key: 'architecture', isSortable: true, isOptional: true },
    { key: 'version', isSortable: true, isOptional: true },
    { key: 'endpoint', isOptional: true },
    { key: 'last_heartbeat_at', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [{ key: 'id__contains' }, { key: 'resource_group' }, { key: 'status' }],
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
  canDelete: true
};
