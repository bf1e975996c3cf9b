import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { UserText } from '../../components/UserText';
import type { Item } from '../../data/entities';
import { isEnded, type Pipeline, type PipelineRun } from '../../data/pipelines/pipelines';
import { Status } from './Status';

const STATUSES = ['waiting', 'running', 'cancelling', 'succeeded', 'failed', 'cancelled'] as const;
const REFRESH_MILLIS = 5_000;

const pipelineOf = (item: Item) => item as unknown as Pipeline;
const runOf = (item: Item) => item as unknown as PipelineRun;

export const PIPELINES: Entity = {
  name: 'pipelines',
  path: '/pipelines',
  id: 'id',
  defaultSort: 'name',
  columns: [
    { key: 'name', isSortable: true, render: item => <Name pipeline={pipelineOf(item)} /> },
    { key: 'actions', render: item => <Start pipeline={pipelineOf(item)} /> },
    {
      key: 'last_run_status',
      isSortable: true,
      render: item => <LastRun pipeline={pipelineOf(item)} />
    },
    { key: 'tasks', isSortable: true },
    { key: 'description', isOptional: true },
    { key: 'owner', isSortable: true, render: item => <Owner pipeline={pipelineOf(item)} /> },
    { key: 'project', isSortable: true, isOptional: true },
    { key: 'version', isSortable: true, isOptional: true },
    { key: 'changed_at', isSortable: true }
  ],
  filters: [{ key: 'name__contains' }, { key: 'owner__contains' }],
  fields: [],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

export const RUNS: Entity = {
  name: 'pipeline-runs',
  path: '/pipeline-runs',
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'pipeline', isSortable: true, render: item => <Run run={runOf(item)} /> },
    { key: 'status', isSortable: true, render: item => <Status status={runOf(item).status} /> },
    { key: 'progress', render: item => <Progress run={runOf(item)} /> },
    { key: 'owner', isSortable: true },
    { key: 'cause', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true },
    { key: 'started_at', isSortable: true, isOptional: true },
    { key: 'ended_at', isSortable: true }
  ],
  filters: [
    { key: 'status', choices: STATUSES.map(value => ({ value, label: value })) },
    { key: 'pipeline__contains' },
    { key: 'owner__contains' }
  ],
  fields: [],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
};

function Name({ pipeline }: { pipeline: Pipeline }) {
  return (
    <Link to="/pipelines" search={{ item: pipeline.id, form: 'edit' }}>
      <UserText text={pipeline.name} />
    </Link>
  );
}

function Owner({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation();
  return pipeline.owner === null ? (
    t('pipelines.owner-project', { name: pipeline.project })
  ) : (
    <UserText text={pipeline.owner} />
  );
}

function Start({ pipeline }: { pipeline: Pipeline }) {
  const { t } = useTranslation();
  return (
    <Link to="/pipelines" search={{ item: pipeline.id, form: 'start' }}>
      {t('pipelines.start')}
    </Link>
  );
}

function LastRun({ pipeline }: { pipeline: Pipeline }) {
  const status = <Status status={pipeline.last_run_status} />;
  if (!pipeline.last_run_id) {
    return status;
  }
  return (
    <Link to="/pipelines" search={{ tab: 'runs', run: pipeline.last_run_id }}>
      {status}
    </Link>
  );
}

function Run({ run }: { run: PipelineRun }) {
  return (
    <Link to="/pipelines" search={{ tab: 'runs', run: run.id }}>
      <UserText text={run.pipeline} />
    </Link>
  );
}

const OPEN_TASKS = ['waiting', 'queued', 'running', 'retrying', 'awaiting-approval'];

function Progress({ run }: { run: PipelineRun }) {
  const { t } = useTranslation();
  const open = OPEN_TASKS.reduce((sum, status) => sum + (run.tasks_by_status[status] ?? 0), 0);
  const isAsking = !isEnded(run.status) && (run.tasks_by_status['awaiting-approval'] ?? 0) > 0;
  return (
    <>
      {t('pipeline-runs.ended-tasks', { done: run.tasks - open, total: run.tasks })}{' '}
      {isAsking && <Status status="awaiting-approval" />}
    </>
  );
}
