import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { CsvExport } from '../../../components/list/CsvExport';
import {
  endpointReportCsvUrl,
  type EndpointReportRequest
} from '../../../data/usage/endpointReports';
import { PeriodFields, usePeriod, type StatisticsProps } from '../PeriodFields';
import { ENDPOINT_GROUPS, everyOf, maxGroups, type EndpointGroup } from '../search';
import { RequestsChart } from './RequestsChart';
import { RequestsRanking } from './RequestsRanking';

const OWN_GROUPS: readonly EndpointGroup[] = ['endpoint', 'token', 'project'];

/** The requests of endpoints and the tokens of their models, over time and by group. */
export function EndpointStatistics({ search, change, isOwn }: StatisticsProps) {
  const { t } = useTranslation();
  const period = usePeriod(search);
  const groups = isOwn ? OWN_GROUPS : ENDPOINT_GROUPS;
  const by = groups.find(group => group === search.group) ?? 'endpoint';
  const { since, until } = period;
  const base = { since, ...(until && { until }), isOwn };
  const every = everyOf(period) === 'month' ? 'month' : 'day';
  const ranking: EndpointReportRequest = { ...base, every: 'period', by };
  return (
    <>
      <PeriodFields search={search} change={change}>
        <CsvExport url={endpointReportCsvUrl({ ...ranking, every }, maxGroups(period, every, 1))} />
      </PeriodFields>
      <Typography.Paragraph type="secondary">{t('endpoint-usage.note')}</Typography.Paragraph>
      <RequestsChart request={{ ...base, every, by: 'total' }} />
      <RequestsRanking
        request={ranking}
        by={by}
        groups={groups}
        onBy={value => change({ group: value })}
      />
    </>
  );
}
