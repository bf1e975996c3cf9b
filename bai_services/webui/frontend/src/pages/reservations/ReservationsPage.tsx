import { App, Button, Popconfirm } from 'antd';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { EntityPage } from '../../components/entities/EntityPage';
import { USABLE_PROJECTS, type Entity } from '../../components/entities/entity';
import { useNow } from '../../components/time';
import { UserText } from '../../components/UserText';
import { meQuery } from '../../data/accounts/me';
import { api, unwrap } from '../../data/client';
import type { Item } from '../../data/entities';
import { queries } from '../../data/queries';
import { conflictsQuery, type Reservation } from '../../data/scheduling/reservations';
import { currentState } from './phase';
import { ReservationChart } from './ReservationChart';
import { ReservationConflicts } from './ReservationConflicts';
import { ReservationDelays } from './ReservationDelays';

const STATES = ['requested', 'approved', 'rejected', 'cancelled', 'expired'] as const;
const APPROVERS: readonly string[] = ['admin', 'superadmin'];
type Decision = 'approved' | 'rejected' | 'cancelled';

const RESERVATIONS: Entity = {
  name: 'reservations',
  path: '/reservations',
  id: 'id',
  defaultSort: '-starts_at',
  columns: [
    { key: 'name', isSortable: true },
    {
      key: 'state',
      isSortable: true,
      render: item => <State reservation={item as unknown as Reservation} />
    },
    { key: 'project', isSortable: true, render: item => <ProjectName item={item} /> },
    { key: 'resource_group', isSortable: true },
    { key: 'nodes' },
    { key: 'resources' },
    { key: 'whole_machines' },
    { key: 'starts_at', isSortable: true },
    { key: 'ends_at', isSortable: true },
    { key: 'agents', isOptional: true },
    { key: 'users', isOptional: true },
    { key: 'author', isSortable: true, isOptional: true },
    { key: 'decided_by', isOptional: true },
    { key: 'used_at', isOptional: true },
    { key: 'grace_seconds', isOptional: true },
    { key: 'note', isOptional: true }
  ],
  filters: [
    { key: 'name__contains' },
    { key: 'state', choices: STATES.map(value => ({ value, label: value })) },
    { key: 'project' },
    { key: 'resource_group' }
  ],
  fields: [
    { key: 'name', kind: 'text', isRequired: true, only: 'create' },
    {
      key: 'project',
      kind: 'reference',
      of: USABLE_PROJECTS,
      isRequired: true,
      only: 'create'
    },
    {
      key: 'resource_group',
      kind: 'reference',
      of: { path: '/resource-groups', name: 'name' },
      isRequired: true,
      only: 'create'
    },
    { key: 'nodes', kind: 'number', only: 'create', default: '1' },
    { key: 'resources', kind: 'slots', isRequired: true, only: 'create' },
    { key: 'whole_machines', kind: 'switch', only: 'create' },
    { key: 'starts_at', kind: 'time', isRequired: true, only: 'create' },
    { key: 'ends_at', kind: 'time', isRequired: true, only: 'create' },
    { key: 'users', kind: 'words', only: 'create' },
    { key: 'grace_seconds', kind: 'duration', only: 'create', default: '30min' },
    { key: 'note', kind: 'text', only: 'create' }
  ],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: true,
  canDelete: false
};

/** Reservations of agents for a project and a period, as a list and as a calendar. */
export function ReservationsPage() {
  return (
    <>
      <EntityPage
        path="/reservations"
        title="pages.reservations"
        entities={[RESERVATIONS]}
        actions={(_, item) => <Decisions item={item} />}
        details={(_, item) => <Effect item={item} />}
      />
      <ReservationChart />
    </>
  );
}

/** The project of a reservation, with its domain if this is not the user's domain. */
function ProjectName({ item }: { item: Item }) {
  const { data: me } = useQuery(meQuery);
  const { project, domain } = item as unknown as Reservation;
  return <UserText text={me?.domain === domain ? project : `${domain}/${project}`} />;
}

function State({ reservation }: { reservation: Reservation }) {
  const { t } = useTranslation();
  return t(`reservations.state-${currentState(reservation, useNow(60_000))}`);
}

/** Whether a reservation waits for a decision. */
const isRequested = (item: Item, now: number) =>
  item['state'] === 'requested' && Date.parse(String(item['ends_at'])) > now;

/** Whether a reservation is requested or approved, and has not ended. */
const isOpen = (item: Item, now: number) =>
  isRequested(item, now) ||
  (item['state'] === 'approved' && Date.parse(String(item['ends_at'])) > now);

/**
 * The sessions that can delay an open reservation, and, for administrators, the effect of an
 * approval on the pending sessions.
 */
function Effect({ item }: { item: Item }) {
  const { data: me } = useQuery(meQuery);
  const now = useNow(60_000);
  const id = String(item['id']);
  const isAdmin = APPROVERS.includes(me?.role ?? '');
  return (
    <>
      {isOpen(item, now) && <ReservationConflicts id={id} isAdmin={isAdmin} />}
      {isAdmin && isRequested(item, now) && <ReservationDelays id={id} />}
    </>
  );
}

/** Buttons to approve, reject and cancel a reservation. */
function Decisions({ item }: { item: Item }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const now = useNow();
  const decide = useMutation({
    mutationFn: (state: Decision) =>
      unwrap(
        api.PATCH('/reservations/{key}', {
          params: { path: { key: String(item['id']) } },
          body: { state }
        })
      ),
    onSuccess: (_, state) => void message.success(t(`reservations.done-${state}`)),
    onError: error => void message.error(error.message),
    onSettled: () => queries.invalidateQueries({ queryKey: ['entities'] })
  });
  const isUndecided = isRequested(item, now);
  const isAdmin = APPROVERS.includes(me?.role ?? '');
  const decisions: Decision[] = [
    ...(isUndecided && isAdmin ? (['approved', 'rejected'] as const) : []),
    ...(isOpen(item, now) && (isAdmin || item['author'] === me?.username)
      ? (['cancelled'] as const)
      : [])
  ];
  const { data: conflicts, isLoading: areConflictsLoading } = useQuery({
    ...conflictsQuery(String(item['id'])),
    enabled: isUndecided && isAdmin
  });
  const loading = (state: Decision) => decide.isPending && decide.variables === state;
  return decisions.map(state =>
    state === 'approved' ? (
      <Popconfirm
        key={state}
        disabled={!conflicts?.count}
        title={t('reservations.ask-approved', { name: String(item['name']) })}
        description={t('reservations.ask-conflicts', { count: conflicts?.count ?? 0 })}
        okText={t('reservations.do-approved')}
        cancelText={t('entities.close')}
        onConfirm={() => decide.mutate(state)}
      >
        <Button
          type="primary"
          // The question must not be skipped by a click before the sessions are known.
          loading={loading(state) || areConflictsLoading}
          onClick={() => {
            if (!conflicts?.count) {
              decide.mutate(state);
            }
          }}
        >
          {t('reservations.do-approved')}
        </Button>
      </Popconfirm>
    ) : (
      <Popconfirm
        key={state}
        title={t(`reservations.ask-${state}`, { name: String(item['name']) })}
        description={t('entities.delete-warning')}
        okText={t(`reservations.do-${state}`)}
        cancelText={t('entities.close')}
        okButtonProps={{ danger: true }}
        onConfirm={() => decide.mutate(state)}
      >
        <Button danger loading={loading(state)}>
          {t(`reservations.do-${state}`)}
        </Button>
      </Popconfirm>
    )
  );
}
