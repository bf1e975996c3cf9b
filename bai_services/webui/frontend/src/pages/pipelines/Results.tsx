import { useState } from 'react';
import { Alert, Button, Descriptions, Flex, Skeleton, Table } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { UserText } from '../../components/UserText';
import { resultsQuery, type PipelineResults } from '../../data/pipelines/pipelines';
import { FileDrawer } from '../data/preview/FileDrawer';
import { replacesData } from '../../data/connection';
import { reasonText } from '../../i18n/reasonText';

type Artifact = PipelineResults['artifacts'][number];

/** The declared outputs of a run with previews, and its metrics. */
export function Results({ runId }: { runId: string }) {
  const { t, i18n } = useTranslation();
  const [open, setOpen] = useState<string>();
  const { data, error, refetch } = useQuery(resultsQuery(runId));
  if (replacesData(error, data)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!data) {
    return <Skeleton active />;
  }
  const metrics = Object.entries(data.metrics);
  const number = new Intl.NumberFormat(i18n.language, { maximumSignificantDigits: 6 });
  return (
    <Flex vertical gap="middle">
      {data.metrics_problem && (
        <Alert
          type="warning"
          showIcon
          title={reasonText(i18n, {
            message: data.metrics_problem,
            coded: data.metrics_problem_coded
          })}
        />
      )}
      {data.notebook_errors.map(({ task, path, cell, error: text }) => (
        <Alert
          key={path}
          type="error"
          showIcon
          title={
            <>
              <UserText text={task} />: {t('pipeline-runs.failed-cell', { cell })}
            </>
          }
          description={<UserText text={text} />}
          action={
            <Button size="small" onClick={() => setOpen(path)}>
              {t('pipeline-runs.open-notebook')}
            </Button>
          }
        />
      ))}
      {metrics.length > 0 && (
        <Descriptions
          title={t('pipeline-runs.metrics')}
          bordered
          size="small"
          column={{ xs: 1, md: 3 }}
          items={metrics.map(([name, value]) => ({
            key: name,
            label: <UserText text={name} />,
            children: number.format(value)
          }))}
        />
      )}
      {data.folder && (
        <Link to="/data" search={{ folder: data.folder, path: data.directory }}>
          {t('pipeline-runs.open-folder')}
        </Link>
      )}
      <Table<Artifact>
        size="small"
        rowKey="path"
        dataSource={data.artifacts}
        locale={{ emptyText: t('pipeline-runs.no-artifacts') }}
        pagination={{ pageSize: 50, hideOnSinglePage: true, showSizeChanger: false }}
        scroll={{ x: 'max-content' }}
        columns={[
          {
            title: t('pipeline-runs.artifact'),
            render: (_, { path, type }) => {
              const name = <UserText text={path.slice(data.directory.length + 1)} />;
              if (type === 'directory' && data.folder) {
                return (
                  <Link to="/data" search={{ folder: data.folder, path }}>
                    {name}
                  </Link>
                );
              }
              return type === 'file' ? (
                <Button
                  type="link"
                  size="small"
                  style={{ paddingInline: 0 }}
                  onClick={() => setOpen(path)}
                >
                  {name}
                </Button>
              ) : (
                name
              );
            }
          },
          { title: t('pipeline-runs.task'), render: (_, { task }) => <UserText text={task} /> },
          {
            title: t('pipeline-runs.size'),
            render: (_, { type, size }) => {
              if (type === null) {
                return t('pipeline-runs.missing');
              }
              return type === 'file' ? formatBytes(size, i18n.language) : '–';
            }
          }
        ]}
      />
      {data.folder && (
        <FileDrawer
          id={data.folder}
          path={open}
          canWrite={false}
          onClose={() => setOpen(undefined)}
        />
      )}
    </Flex>
  );
}
