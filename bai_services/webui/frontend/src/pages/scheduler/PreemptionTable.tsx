import { Flex, Skeleton, Tag, Typography, type TableColumnsType } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatTime } from '../../components/time';
import { preemptionsQuery, type Preemption } from '../../data/scheduling/preemptions';
import { replacesData } from '../../data/connection';

/** The latest preemptions in a resource group: which sessions were stopped for which session. */
export function PreemptionTable({ group }: { group: string }) {
  const { t, i18n } = useTranslation();
  const { data, error, refetch } = useQuery(preemptionsQuery(group));
  if (replacesData(error, data)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!data) {
    return <Skeleton active />;
  }
  const columns: TableColumnsType<Preemption> = [
    {
      title: t('preemptions.created-at'),
      render: (_, row) => formatTime(row.created_at, i18n.language)
    },
    {
      title: t('preemptions.session'),
      render: (_, row) => <Name id={row.session_id} name={row.session} owner={row.owner} />
    },
    { title: t('preemptions.victims'), render: (_, row) => <Victims preemption={row} /> },
    {
      title: t('preemptions.stops-at'),
      render: (_, row) => formatTime(row.stops_at, i18n.language)
    },
    { title: t('preemptions.mode'), render: (_, row) => t(`preemptions.mode-${row.mode}`) },
    {
      title: t('preemptions.outcome'),
      render: (_, row) => t(`preemptions.outcome-${row.outcome || 'active'}`)
    }
  ];
  return (
    <>
      <Typography.Paragraph type="secondary">{t('preemptions.help')}</Typography.Paragraph>
      <CardTable
        className="bai-wide-table"
        size="small"
        rowKey="id"
        columns={columns}
        dataSource={data.items}
        pagination={false}
        locale={{ emptyText: <Typography.Text>{t('preemptions.none')}</Typography.Text> }}
      />
    </>
  );
}

function Victims({ preemption }: { preemption: Preemption }) {
  const { t } = useTranslation();
  const hidden = preemption.victim_count - preemption.victims.length;
  return (
    <Flex vertical gap={4}>
      {preemption.victims.map(victim => (
        <span key={victim.session_id}>
          <Name id={victim.session_id} name={victim.session} owner={victim.owner} />{' '}
          <Tag>{t(`preemptions.rule-${victim.rule}`)}</Tag>
          {preemption.ended_at && !victim.stopped_at && (
            <Tag color="green">{t('preemptions.not-stopped')}</Tag>
          )}
        </span>
      ))}
      {hidden > 0 && (
        <Typography.Text type="secondary">
          {t('preemptions.hidden', { count: hidden })}
        </Typography.Text>
      )}
    </Flex>
  );
}

function Name({ id, name, owner }: { id: string; name: string; owner: string }) {
  const { t } = useTranslation();
  return id ? (
    <>
      <Link to="/sessions" search={{ tab: 'all', session: id }}>
        {name}
      </Link>{' '}
      <Typography.Text type="secondary">{owner}</Typography.Text>
    </>
  ) : (
    <Typography.Text type="secondary">{t('scheduler.hidden')}</Typography.Text>
  );
}
