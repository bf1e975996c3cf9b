import { useState } from 'react';
import { Flex, List, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { PagedList, rangeOf } from '../../components/list/PagedList';
import { formatTime } from '../../components/time';
import { scheduleRunsQuery, type ScheduleRun } from '../../data/sessions/scheduleRuns';
import { reasonText } from '../../i18n/reasonText';
import { RunStatus } from './RunStatus';

/** The last starts of a schedule: the session of each, or why none was started. */
export function Runs({ schedule }: { schedule: string }) {
  const { t } = useTranslation();
  const [page, setPage] = useState(1);
  const runs = useQuery(scheduleRunsQuery(schedule, rangeOf(page)));
  return (
    <section style={{ marginBlockStart: 24 }}>
      <Typography.Title level={5}>{t('schedules.runs')}</Typography.Title>
      <PagedList
        query={runs}
        page={page}
        onPage={setPage}
        renderItem={run => <Run run={run} />}
        locale={{ emptyText: t('schedules.no-runs') }}
      />
    </section>
  );
}

function Run({ run }: { run: ScheduleRun }) {
  const { t, i18n } = useTranslation();
  const { language } = i18n;
  return (
    <List.Item>
      <Flex wrap gap="small" align="center">
        <span className="bai-time">{formatTime(run.due_at, language)}</span>
        <RunStatus status={run.status} />
        {run.session_id && (
          <Link to="/sessions" search={{ tab: 'all', session: run.session_id }}>
            {t('schedules.session')}
          </Link>
        )}
        {run.status === 'started' && run.stops_at && (
          <Typography.Text type="secondary">
            {t('schedules.stops-at', { time: formatTime(run.stops_at, language) })}
          </Typography.Text>
        )}
        {run.reason && (
          <Typography.Text type="secondary">
            {reasonText(i18n, { message: run.reason, coded: run.coded })}
          </Typography.Text>
        )}
      </Flex>
    </List.Item>
  );
}
