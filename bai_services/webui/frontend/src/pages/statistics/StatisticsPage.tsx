import { Flex, Segmented, Select, Skeleton, Typography } from 'antd';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { CsvExport } from '../../components/list/CsvExport';
import { defined } from '../../components/list/listSearch';
import { meQuery } from '../../data/accounts/me';
import { reportCsvUrl, reportQuery, type ReportRequest } from '../../data/usage/reports';
import { Budgets } from './Budgets';
import { EndpointStatistics } from './endpoints/EndpointStatistics';
import { PeriodFields, usePeriod, type Changes, type StatisticsProps } from './PeriodFields';
import { Ranking } from './Ranking';
import { everyOf, GROUPS, maxGroups, type Group } from './search';
import { HeatMap, OverTime, QueueWait } from './UsageCharts';

const route = getRouteApi('/statistics');
const ADMINS: readonly string[] = ['admin', 'superadmin', 'monitor'];
// Groups for a user's own usage, without domains and users: there is only one of each.
const OWN_GROUPS: readonly Group[] = [
  'project',
  'image',
  'resource-group',
  'session-kind',
  'device-model'
];

/** The usage of resources, over time and by group, of the caller or of all visible users. */
export function StatisticsPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data: me } = useQuery(meQuery);
  const change = (changes: Changes) =>
    void navigate({ search: old => defined({ ...old, ...changes }) });
  if (me === undefined) {
    return <Skeleton active />;
  }
  const isAdmin = ADMINS.includes(me.role);
  const shown = { search, change, isOwn: !isAdmin || search.view === 'own' };
  return (
    <>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        <Typography.Title level={1} className="bai-title">
          {t('pages.statistics')}
        </Typography.Title>
        <Segmented<string>
          value={search.about ?? 'resources'}
          onChange={about => change({ about: about === 'endpoints' ? about : undefined })}
          aria-label={t('statistics.about')}
          options={['resources', 'endpoints'].map(value => ({
            value,
            label: t(`statistics.about-${value}`)
          }))}
        />
        {isAdmin && (
          <Segmented<string>
            value={search.view ?? 'all'}
            onChange={view =>
              change({
                view: view === 'own' ? 'own' : undefined,
                by: undefined,
                group: undefined
              })
            }
            aria-label={t('statistics.view')}
            options={['all', 'own'].map(value => ({
              value,
              label: t(`statistics.view-${value}`)
            }))}
          />
        )}
      </Flex>
      {search.about === 'endpoints' ? (
        <EndpointStatistics {...shown} />
      ) : (
        <>
          <Budgets />
          <ResourceStatistics {...shown} />
        </>
      )}
    </>
  );
}

/** The usage of resources. */
function ResourceStatistics({ search, change, isOwn }: StatisticsProps) {
  const { t } = useTranslation();
  const period = usePeriod(search);
  const groups = isOwn ? OWN_GROUPS : GROUPS;
  const by = groups.find(group => group === search.by) ?? groups[0] ?? 'project';
  const { since, until } = period;
  const base = { since, ...(until && { until }), isOwn };
  // The slots of the previous period stay selectable until those of the new period are known.
  const totals = useQuery({
    ...reportQuery({ ...base, every: 'period', by: 'total' }),
    placeholderData: keepPreviousData
  });
  const slots = [...new Set((totals.data?.rows ?? []).map(row => row.slot))];
  const slot = slots.find(name => name === search.slot) ?? preferred(slots);
  const ranking: ReportRequest = { ...base, every: 'period', by };
  const every = everyOf(period);
  return (
    <>
      <PeriodFields search={search} change={change}>
        {slot !== undefined && (
          <Select
            value={slot}
            onChange={value => change({ slot: value })}
            aria-label={t('statistics.slot')}
            options={slots.map(name => ({
              value: name,
              label: name === 'sessions' ? t('pages.sessions') : name
            }))}
            style={{ minWidth: 130 }}
          />
        )}
        <CsvExport
          url={reportCsvUrl({ ...ranking, every }, maxGroups(period, every, slots.length))}
        />
      </PeriodFields>
      {totals.error && <ErrorNotice error={totals.error} onRetry={() => void totals.refetch()} />}
      {!totals.data && !totals.error && <Skeleton active />}
      {totals.data && slots.length === 0 && (
        <Typography.Paragraph type="secondary">{t('statistics.none')}</Typography.Paragraph>
      )}
      {slot !== undefined && (
        <>
          <OverTime period={period} slot={slot} isOwn={isOwn} />
          <Ranking
            request={ranking}
            slot={slot}
            by={by}
            groups={groups}
            onBy={value => change({ by: value })}
          />
          {!isOwn && <HeatMap period={period} slot={slot} />}
          {!isOwn && <QueueWait period={period} />}
        </>
      )}
    </>
  );
}

/** The slot that is selected by default: a device slot, else cpu, else the first slot. */
const preferred = (slots: readonly string[]) =>
  slots.find(name => name.includes('.')) ?? slots.find(name => name === 'cpu') ?? slots[0];
