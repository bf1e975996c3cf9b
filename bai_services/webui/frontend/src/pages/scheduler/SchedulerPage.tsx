import { Alert, Empty, Flex, Segmented, Select, Skeleton, Tabs, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { Forbidden } from '../../components/Forbidden';
import { defined } from '../../components/list/listSearch';
import { meQuery } from '../../data/accounts/me';
import { groupNamesQuery, scheduleQuery } from '../../data/scheduling/schedule';
import { PreemptionTable } from './PreemptionTable';
import { TryPolicy } from './replays/TryPolicy';
import { QueueTable, RunningTable } from './SchedulerTables';
import type { SchedulerSearch, View } from './search';
import { RANGES, type Range } from './timeScale';
import { Timeline } from './Timeline';
import { replacesData } from '../../data/connection';

const route = getRouteApi('/scheduler');
const DEFAULT_RANGE: Range = '6h';
const READERS: readonly string[] = ['admin', 'superadmin', 'monitor'];

/** Schedule and preemptions of a resource group, and replays of its history. */
export function SchedulerPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data: me } = useQuery(meQuery);
  const { data: groups, error, refetch } = useQuery(groupNamesQuery);
  const group = search.group ?? groups?.[0];
  const range = search.range ?? DEFAULT_RANGE;
  const change = (changes: SchedulerSearch) =>
    void navigate({ search: old => ({ ...old, ...changes }) });
  if (me === undefined) {
    return <Skeleton active />;
  }
  if (!READERS.includes(me.role)) {
    return <Forbidden />;
  }
  const mayChange = me.role !== 'monitor';
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 8 }}>
        <Typography.Title level={1} className="bai-title">
          {t('pages.scheduler')}
        </Typography.Title>
        <Select
          value={group ?? null}
          options={(groups ?? []).map(name => ({ value: name, label: name }))}
          onChange={(name: string | null) =>
            // Remove the replay from the URL: it belongs to the previous group.
            name &&
            void navigate({ search: old => defined({ ...old, group: name, replay: undefined }) })
          }
          aria-label={t('scheduler.group')}
          style={{ minWidth: 140 }}
        />
      </Flex>
      {error && !groups && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!groups && !error && <Skeleton active />}
      {groups?.length === 0 && <Empty description={t('entities.none')} />}
      {group && (
        <Tabs
          activeKey={search.view ?? 'queue'}
          onChange={view => change({ view: view as View })}
          destroyOnHidden
          items={[
            {
              key: 'queue',
              label: t('scheduler.queue'),
              children: (
                <>
                  <Segmented<Range>
                    value={range}
                    options={(Object.keys(RANGES) as Range[]).map(value => ({
                      value,
                      label: t(`scheduler.range-${value}`)
                    }))}
                    onChange={value => change({ range: value })}
                    aria-label={t('scheduler.range')}
                    style={{ marginBottom: 12 }}
                  />
                  <GroupSchedule group={group} range={range} mayChange={mayChange} />
                </>
              )
            },
            {
              key: 'preemptions',
              label: t('preemptions.title'),
              children: <PreemptionTable group={group} />
            },
            {
              key: 'try',
              label: t('replays.title'),
              children: (
                <TryPolicy group={group} search={search} change={change} mayStart={mayChange} />
              )
            }
          ]}
        />
      )}
    </>
  );
}

function GroupSchedule(props: { group: string; range: Range; mayChange: boolean }) {
  const { t } = useTranslation();
  const { data: schedule, error, refetch } = useQuery(scheduleQuery(props.group));
  if (replacesData(error, schedule)) {
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
