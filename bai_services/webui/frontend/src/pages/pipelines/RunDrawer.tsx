import { useMemo, useState } from 'react';
import { App, Button, Drawer, Flex, Skeleton, Table, Tabs } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { Tag } from '../../components/Tag';
import { formatDuration, formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import { meQuery } from '../../data/accounts/me';
import { reasonText } from '../../i18n/reasonText';
import {
  isEnded,
  runQuery,
  useAnswerTask,
  useCancelRun,
  type PipelineRun,
  type PipelineRunDetail,
  type TaskRun
} from '../../data/pipelines/pipelines';
import { Gantt } from './Gantt';
import { isInside, nestedRuns, tasksOfRuns, type Nested } from './layout';
import { ResumeRun } from './ResumeRun';
import { Results } from './Results';
import { RunApps } from './RunApps';
import { Status } from './Status';
import { TaskGraph } from './TaskGraph';

const GRAPH_HEIGHT = 320;

interface RunDrawerProps {
  runId: string | undefined;
  onClose: () => void;
}

/** Drawer with a run: its graph with live states, its times, its tasks and its definition. */
export function RunDrawer({ runId, onClose }: RunDrawerProps) {
  const { t } = useTranslation();
  const { data, error, refetch, dataUpdatedAt } = useQuery({
    ...runQuery(runId ?? ''),
    enabled: runId !== undefined
  });
  const detail = data?.run.id === runId ? data : undefined;
  return (
    <Drawer
      open={runId !== undefined}
      onClose={onClose}
      size="100%"
      destroyOnHidden
      title={
        detail ? (
          <Flex gap="small" align="center">
            <UserText text={detail.run.pipeline} /> <Status status={detail.run.status} />
          </Flex>
        ) : (
          t('pipeline-runs.run')
        )
      }
      extra={detail && <Actions run={detail.run} />}
    >
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!detail && !error && <Skeleton active />}
      {detail && <Details detail={detail} now={dataUpdatedAt} />}
    </Drawer>
  );
}

function Actions({ run }: { run: PipelineRun }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const cancel = useCancelRun(run.id);
  const onError = (error: Error) => void message.error(error.message);
  const isOwner = me?.id === run.owner_id;
  const isAdmin = me?.role === 'admin' || me?.role === 'superadmin';
  return (
    <Flex gap="small">
      {!isEnded(run.status) && run.status !== 'cancelling' && (isOwner || isAdmin) && (
        <Button loading={cancel.isPending} onClick={() => cancel.mutate(undefined, { onError })}>
          {t('pipeline-runs.cancel')}
        </Button>
      )}
      {['failed', 'cancelled'].includes(run.status) && isOwner && <ResumeRun run={run} />}
    </Flex>
  );
}

/** `now`: when the run was read. */
function Details({ detail, now }: { detail: PipelineRunDetail; now: number }) {
  const { t, i18n } = useTranslation();
  const [selected, setSelected] = useState<string>();
  const { run, task_runs: runs } = detail;
  const tasks = useMemo(() => tasksOfRuns(runs), [runs]);
  const shown = selected ? runs.filter(({ task }) => isInside(task, selected)) : runs;
  const parameters = Object.entries(run.parameters);
  return (
    <>
      <p>
        {t('pipeline-runs.facts', {
          owner: run.owner,
          time: formatTime(run.created_at, i18n.language),
          version: run.pipeline_version
        })}
        {parameters.length > 0 && (
          <>
            {' '}
            <UserText
              text={parameters.map(([name, value]) => `${name} = ${String(value)}`).join('; ')}
            />
          </>
        )}
      </p>
      <RunApps key={run.id} runId={run.id} />
      <TaskGraph
        tasks={tasks}
        height={GRAPH_HEIGHT}
        selected={selected}
        onSelect={task => setSelected(task === selected ? undefined : task)}
      />
      <Tabs
        destroyOnHidden
        items={[
          {
            key: 'tasks',
            label: t('pipeline-runs.tasks'),
            children: <Tasks runs={shown} run={run} />
          },
          {
            key: 'times',
            label: t('pipeline-runs.times'),
            children: <Gantt runs={shown} now={now} />
          },
          {
            key: 'results',
            label: t('pipeline-runs.results'),
            children: <Results runId={run.id} />
          },
          {
            key: 'definition',
            label: t('pipeline-runs.definition'),
            children: <pre style={{ overflow: 'auto' }}>{detail.definition}</pre>
          }
        ]}
      />
    </>
  );
}

function Tasks({ runs, run }: { runs: readonly TaskRun[]; run: PipelineRun }) {
  const { t, i18n } = useTranslation();
  const duration = ({ started_at: start, ended_at: end }: TaskRun) =>
    start && end
      ? formatDuration((new Date(end).getTime() - new Date(start).getTime()) / 1000, i18n.language)
      : '–';
  return (
    <Table<Nested<TaskRun>>
      size="small"
      rowKey={({ task, index }) => `${task}/${index}`}
      dataSource={nestedRuns(runs)}
      expandable={{ defaultExpandAllRows: true }}
      pagination={{ pageSize: 50, hideOnSinglePage: true, showSizeChanger: false }}
      scroll={{ x: 'max-content' }}
      columns={[
        {
          title: t('pipeline-runs.task'),
          render: (_, each) => (
            <UserText text={each.item ? `${each.label} (${each.item})` : each.label} />
          )
        },
        {
          title: t('pipeline-runs.status'),
          render: (_, each) => (
            <Flex gap="small" align="center">
              <Status status={each.status} />
              {each.is_cached && <Tag>{t('pipeline-runs.cached')}</Tag>}
              {each.status === 'awaiting-approval' && <Answer run={run} task={each.task} />}
            </Flex>
          )
        },
        { title: t('pipeline-runs.attempt'), dataIndex: 'attempt' },
        { title: t('pipeline-runs.duration'), render: (_, each) => duration(each) },
        {
          title: t('pipeline-runs.session'),
          render: (_, each) =>
            each.session ? (
              <Link to="/sessions" search={{ session: each.session, panel: 'logs' }}>
                {t('pipeline-runs.log')}
              </Link>
            ) : (
              '–'
            )
        },
        {
          title: t('pipeline-runs.message'),
          render: (_, { message, message_coded: coded }) =>
            coded ? reasonText(i18n, { message, coded }) : <UserText text={message} />
        }
      ]}
    />
  );
}

function Answer({ run, task }: { run: PipelineRun; task: string }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const answer = useAnswerTask(run.id);
  const onError = (error: Error) => void message.error(error.message);
  return (
    <>
      <Button
        size="small"
        type="primary"
        loading={answer.isPending}
        onClick={() => answer.mutate({ task, isApproved: true }, { onError })}
      >
        {t('pipeline-runs.approve')}
      </Button>
      <Button
        size="small"
        disabled={answer.isPending}
        onClick={() => answer.mutate({ task, isApproved: false }, { onError })}
      >
        {t('pipeline-runs.reject')}
      </Button>
    </>
  );
}
