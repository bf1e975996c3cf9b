import { Alert, Flex, Segmented, Select, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { Forbidden } from '../../components/Forbidden';
import { meQuery } from '../../data/me';
import { groupNamesQuery, scheduleQuery } from '../../data/schedule';
import { QueueTable, RunningTable } from './SchedulerTables';
import type { SchedulerSearch } from './search';
import { RANGES, type Range } from './timeScale';
import { Timeline } from './Timeline';

const route = getRouteApi('/scheduler');
const DEFAULT_RANGE: Range = '6h';
const READERS: readonly string[] = ['admin', 'superadmin', 'monitor'];

/** Chart and tables of a resource group: running sessions, pending sessions and reservations. */
export function SchedulerPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data: me } = useQuery(meQuery);
  const { data: groups } = useQuery(groupNamesQuery);
  const group = search.group ?? groups?.[0];
  const range = search.range ?? DEFAULT_RANGE;
  const change = (changes: SchedulerSearch) =>
    void navigate({ search: old => ({ ...old, ...changes }) });
  if (me && !READERS.includes(me.role)) {
    return <Forbidden />;
  }
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 16 }}>
        <Typography.Title level={1} className="bai-title">
          {t('pages.scheduler')}
        </Typography.Title>
        <Segmented<Range>
          value={range}
          options={(Object.keys(RANGES) as Range[]).map(value => ({
            value,
            label: t(`scheduler.range-${value}`)
          }))}
          onChange={value => change({ range: value })}
          aria-label={t('scheduler.range')}
        />
        <Select
          value={group ?? null}
          options={(groups ?? []).map(name => ({ value: name, label: name }))}
          onChange={(name: string | null) => name && change({ group: name })}
          aria-label={t('scheduler.group')}
          style={{ minWidth: 140 }}
        />
      </Flex>
      {group && <GroupSchedule group={group} range={range} mayChange={me?.role !== 'monitor'} />}
    </>
  );
}

function GroupSchedule(props: { group: string; range: Range; mayChange: boolean }) {
  const { t } = useTranslation();
  const { data: schedule, error, refetch } = useQuery(scheduleQuery(props.group));
  if (error) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!schedule) {
    return <Skeleton active />;
  }
  if (!schedule.is_complete) {
    return <Alert type="info" showIcon title={t('scheduler.starting')} />;
  }
  return (
    <>
      <Typography.Paragraph type="secondary">
        {t('scheduler.order', { order: t(`resource-groups.scheduler-${schedule.order}`) })}
      </Typography.Paragraph>
      <Timeline schedule={schedule} range={props.range} />
      <QueueTable schedule={schedule} mayChange={props.mayChange} />
      <RunningTable schedule={schedule} />
    </>
  );
}
