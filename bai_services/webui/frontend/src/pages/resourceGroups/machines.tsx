import { Badge } from 'antd';
import i18next from 'i18next';
import type { Entity } from '../../components/entities/entity';
import type { Item } from '../../data/entities';

const REFRESH_MILLIS = 10_000;
const ENDING = ['draining', 'stopping', 'stopped', 'failed'];

const COLORS: Record<string, 'processing' | 'success' | 'warning' | 'error' | 'default'> = {
  requested: 'processing',
  starting: 'processing',
  running: 'success',
  draining: 'warning',
  stopping: 'warning',
  stopped: 'default',
  failed: 'error'
};

/** The status of a machine, with its reason and the error message of the provisioning command. */
function statusOf(machine: Item) {
  const status = String(machine['status']);
  const reason = (machine['reason'] ?? '') as string;
  const message = (machine['message'] ?? '') as string;
  const texts = [
    i18next.t(`provisioned-machines.status-${status}`),
    reason && i18next.t(`provisioned-machines.reason-${reason}`),
    message
  ];
  return <Badge status={COLORS[status] ?? 'default'} text={texts.filter(Boolean).join(': ')} />;
}

/** Machines that the provisioning command has started for the pending sessions of a group. */
export const PROVISIONED_MACHINES: Entity = {
  name: 'provisioned-machines',
  path: '/provisioned-machines',
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'reference', isSortable: true },
    { key: 'resource_group', isSortable: true },
    { key: 'status', isSortable: true, hasSentences: true, render: statusOf },
    { key: 'slots' },
    { key: 'agent_id', isSortable: true },
    { key: 'created_at', isSortable: true },
    { key: 'joined_at', isSortable: true, isOptional: true },
    { key: 'status_changed_at', isSortable: true, isOptional: true },
    { key: 'id', isOptional: true }
  ],
  filters: [
    { key: 'resource_group' },
    { key: 'agent_id__contains' },
    { key: 'reference__contains' }
  ],
  fields: [],
  writers: ['superadmin'],
  canCreate: false,
  canDelete: true,
  isDeletable: machine => !ENDING.includes(String(machine['status']))
};
