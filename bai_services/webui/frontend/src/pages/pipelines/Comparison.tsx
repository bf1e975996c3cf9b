import { useState } from 'react';
import { Flex, Select, Table, Typography, type TableColumnType } from 'antd';
import { useQueries, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import { entitiesQuery } from '../../data/entities';
import { resultsQuery, type Pipeline, type PipelineRun } from '../../data/pipelines/pipelines';
import { Status } from './Status';

const MAX_PIPELINES = 200;
const MAX_RUNS = 20;
// Two runs may have been created in the same minute.
const ID_CHARACTERS = 8;

interface Row {
  run: PipelineRun;
  metrics: Record<string, number>;
}

interface ComparisonProps {
  pipelineId: string | undefined;
  onSelect: (pipelineId: string) => void;
}

/** The latest runs of a pipeline with their parameters and metrics. */
export function Comparison({ pipelineId, onSelect }: ComparisonProps) {
  const { t, i18n } = useTranslation();
  const [text, setText] = useState('');
  const pipelines = useQuery(
    entitiesQuery('/pipelines', {
      limit: MAX_PIPELINES,
      offset: 0,
      sort: 'name',
      filters: text ? { name__contains: text } : {}
    })
  );
  const runs = useQuery({
    ...entitiesQuery('/pipeline-runs', {
      limit: MAX_RUNS,
      offset: 0,
      sort: '-created_at',
      filters: { pipeline_id: pipelineId ?? '' }
    }),
    enabled: pipelineId !== undefined
  });
  const found = pipelineId ? ((runs.data?.items ?? []) as unknown as PipelineRun[]) : [];
  const results = useQueries({ queries: found.map(({ id }) => resultsQuery(id)) });
  const rows: Row[] = found.map((run, index) => ({
    run,
    metrics: results[index]?.data?.metrics ?? {}
  }));
  const number = new Intl.NumberFormat(i18n.language, { maximumSignificantDigits: 6 });
  const parameters = namesOf(rows.map(({ run }) => run.parameters));
  const metrics = namesOf(rows.map(row => row.metrics));
  const error = pipelines.error ?? runs.error ?? results.find(each => each.error)?.error;
  const columns: TableColumnType<Row>[] = [
    {
      title: t('pipeline-runs.run'),
      fixed: 'left',
      render: (_, { run }) => (
        <>
          <Link to="/pipelines" search={{ tab: 'runs', run: run.id }}>
            {formatTime(run.created_at, i18n.language)}
          </Link>{' '}
          <Typography.Text type="secondary">{run.id.slice(0, ID_CHARACTERS)}</Typography.Text>
        </>
      )
    },
    { title: t('pipeline-runs.status'), render: (_, { run }) => <Status status={run.status} /> },
    ...parameters.map(name => ({
      key: `parameter/${name}`,
      title: <UserText text={name} />,
      render: (_: unknown, { run }: Row) => <UserText text={shown(run.parameters[name])} />,
      sorter: (one: Row, other: Row) =>
        shown(one.run.parameters[name]).localeCompare(
          shown(other.run.parameters[name]),
          i18n.language,
          { numeric: true }
        )
    })),
    ...metrics.map(name => ({
      key: `metric/${name}`,
      title: <UserText text={name} />,
      align: 'right' as const,
      render: (_: unknown, row: Row) => {
        const value = row.metrics[name];
        return value === undefined ? '–' : number.format(value);
      },
      sorter: (one: Row, other: Row) =>
        (one.metrics[name] ?? -Infinity) - (other.metrics[name] ?? -Infinity)
    }))
  ];
  return (
    <Flex vertical gap="middle">
      <Select
        aria-label={t('pipeline-runs.pipeline')}
        placeholder={t('pipeline-runs.choose-pipeline')}
        value={pipelineId ?? null}
        onChange={onSelect}
        showSearch={{ filterOption: false, onSearch: setText }}
        loading={pipelines.isFetching}
        style={{ maxWidth: 400 }}
        options={((pipelines.data?.items ?? []) as unknown as Pipeline[]).map(({ id, name }) => ({
          value: id,
          label: name
        }))}
      />
      {error && <ErrorNotice error={error} />}
      {pipelineId && (
        <Table<Row>
          size="small"
          rowKey={({ run }) => run.id}
          dataSource={rows}
          columns={columns}
          loading={runs.isLoading}
          pagination={false}
          scroll={{ x: 'max-content' }}
        />
      )}
    </Flex>
  );
}

const namesOf = (objects: readonly object[]) =>
  [...new Set(objects.flatMap(each => Object.keys(each)))].sort();

const shown = (value: PipelineRun['parameters'][string] | undefined) => {
  if (value === undefined) {
    return '–';
  }
  return Array.isArray(value) ? value.map(String).join(', ') : String(value);
};
