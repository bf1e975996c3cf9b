import { useState } from 'react';
import { Flex } from 'antd';
import { Link } from '@tanstack/react-router';
import i18next from 'i18next';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../../components/entities/entity';
import { EntityList } from '../../../components/entities/EntityList';
import { StatusTag } from '../../../components/StatusTag';
import { Tag, type TagColor } from '../../../components/Tag';
import type { Item } from '../../../data/entities';
import { REFRESH_MILLIS, type Replica } from '../../../data/serving/endpoints';
import { reasonText } from '../../../i18n/reasonText';
import type { EndpointTabProps } from './EndpointDrawer';

const PHASES = ['starting', 'ready', 'draining', 'stopping', 'ended'];
const COLORS: Record<string, TagColor | undefined> = {
  starting: 'blue',
  ready: 'green',
  draining: 'orange',
  stopping: 'orange'
};
const ID_CHARACTERS = 8;

const replicaOf = (item: Item) => item as unknown as Replica;

const replicasOf = (key: string): Entity => ({
  name: 'endpoint-replicas',
  path: `/endpoints/${key}/replicas`,
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'session', render: item => <SessionLinks replica={replicaOf(item)} /> },
    { key: 'phase', isSortable: true, render: item => <Phase phase={replicaOf(item).phase} /> },
    { key: 'session_status', render: item => sessionStatus(replicaOf(item)) },
    { key: 'revision', isSortable: true },
    { key: 'reason', render: item => replicaReason(replicaOf(item)) },
    { key: 'created_at', isSortable: true },
    { key: 'changed_at', isSortable: true, isOptional: true },
    { key: 'agent', isOptional: true },
    { key: 'id', isOptional: true }
  ],
  filters: [{ key: 'phase', choices: PHASES.map(value => ({ value, label: value })) }],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
});

/** The replicas of an endpoint, also those that have ended recently. */
export function Replicas({ endpoint, search, onChange }: EndpointTabProps) {
  const [entity] = useState(() => replicasOf(endpoint.id));
  return (
    <EntityList
      entity={entity}
      search={search.list ?? {}}
      onSearch={changes => onChange({ list: { ...search.list, ...changes } })}
    />
  );
}

/** Links to the session of a replica and to its log. A replica has the id of its session. */
function SessionLinks({ replica: { id, session_status: status } }: { replica: Replica }) {
  const { t } = useTranslation();
  const name = id.slice(0, ID_CHARACTERS);
  if (status === null) {
    return name;
  }
  return (
    <Flex gap="small" className="bai-nowrap">
      <Link to="/sessions" search={{ session: id }}>
        {name}
      </Link>
      <Link to="/sessions" search={{ session: id, panel: 'logs' }}>
        {t('sessions.logs')}
      </Link>
    </Flex>
  );
}

function Phase({ phase }: { phase: string }) {
  const { t } = useTranslation();
  return <Tag color={COLORS[phase]}>{t(`endpoint-replicas.phase-${phase}`)}</Tag>;
}

const sessionStatus = ({ session_status: status }: Replica) =>
  status === null ? '–' : <StatusTag status={status} />;

const replicaReason = ({ reason, reason_coded: coded }: Replica) =>
  reason ? reasonText(i18next, { message: reason, coded }) : '–';
