import { useMemo, useState } from 'react';
import { Button, Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import i18next from 'i18next';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../../components/entities/entity';
import { EntityList } from '../../../components/entities/EntityList';
import { StatusTag } from '../../../components/StatusTag';
import type { Item } from '../../../data/entities';
import { REFRESH_MILLIS, revisionsQuery, type Replica } from '../../../data/serving/endpoints';
import { reasonText } from '../../../i18n/reasonText';
import { sharesOf } from '../shares';
import type { EndpointTabProps } from './EndpointDrawer';
import { Phase } from './Phase';
import { ReplicaHistory } from './ReplicaHistory';

const PHASES = ['starting', 'ready', 'draining', 'stopping', 'ended'];
const ID_CHARACTERS = 8;

const replicaOf = (item: Item) => item as unknown as Replica;

interface ListOptions {
  /** Id of the endpoint. */
  key: string;
  /** Numbers of the revisions that get requests. */
  serving: readonly number[];
  onHistory: (replica: string) => void;
}

const replicasOf = ({ key, serving, onHistory }: ListOptions): Entity => ({
  name: 'endpoint-replicas',
  path: `/endpoints/${key}/replicas`,
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'session', render: item => <SessionLinks replica={replicaOf(item)} /> },
    { key: 'phase', isSortable: true, render: item => <Phase phase={replicaOf(item).phase} /> },
    { key: 'traffic', render: item => <Traffic replica={replicaOf(item)} serving={serving} /> },
    { key: 'session_status', render: item => sessionStatus(replicaOf(item)) },
    { key: 'revision', isSortable: true },
    { key: 'reason', hasSentences: true, render: item => replicaReason(replicaOf(item)) },
    {
      key: 'history',
      render: item => <HistoryButton onOpen={() => onHistory(replicaOf(item).id)} />
    },
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

/** The replicas of an endpoint, including those that ended recently. */
export function Replicas({ endpoint, search, onChange }: EndpointTabProps) {
  const { id, weights } = endpoint;
  const [replica, setReplica] = useState<string>();
  const { data: revisions } = useQuery(revisionsQuery(id));
  const numbers = sharesOf(weights, revisions ?? []).map(({ number }) => number);
  const serving = JSON.stringify(numbers);
  const entity = useMemo(
    () => replicasOf({ key: id, serving: JSON.parse(serving) as number[], onHistory: setReplica }),
    [id, serving]
  );
  return (
    <>
      <EntityList
        entity={entity}
        search={search.list ?? {}}
        onSearch={changes => onChange({ list: { ...search.list, ...changes } })}
      />
      {replica !== undefined && (
        <ReplicaHistory endpoint={id} replica={replica} onClose={() => setReplica(undefined)} />
      )}
    </>
  );
}

/** Whether gateways forward new requests to a replica. */
function Traffic({ replica, serving }: { replica: Replica; serving: readonly number[] }) {
  const { t } = useTranslation();
  const { phase, revision } = replica;
  const isServing = phase === 'ready' && revision !== null && serving.includes(revision);
  return t(`endpoint-replicas.traffic-${isServing ? 'on' : phase === 'draining' ? 'last' : 'off'}`);
}

function HistoryButton({ onOpen }: { onOpen: () => void }) {
  const { t } = useTranslation();
  return (
    <Button size="small" onClick={onOpen}>
      {t('endpoint-replicas.history')}
    </Button>
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

const sessionStatus = ({ session_status: status }: Replica) =>
  status === null ? '–' : <StatusTag status={status} />;

const replicaReason = ({ reason, reason_coded: coded }: Replica) =>
  reason ? reasonText(i18next, { message: reason, coded }) : '–';
