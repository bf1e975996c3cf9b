import { useMemo, useState } from 'react';
import { Flex, Segmented, Typography, type TableColumnsType } from 'antd';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../../components/CardTable';
import { LazyChart } from '../../../components/chart/LazyChart';
import { personal } from '../../../components/personal';
import { formatDuration, formatTime } from '../../../components/time';
import type { Comparison, GroupWaits, PolicyReport } from '../../../data/scheduling/replays';
import { resourcesOf, utilizationOption, waitOption } from './charts';
import { CURRENT, keyOf, mostChangedUser, ruleTexts } from './summary';

const CHART_HEIGHT = 240;
const GROUPINGS = { project: 'by_project', user: 'by_user', priority: 'by_priority' } as const;
type Grouping = keyof typeof GROUPINGS;

/** Comparison of the history with policies: tables, charts, and limitations of the replay. */
export function ReplayResult({ comparison }: { comparison: Comparison }) {
  const { t, i18n } = useTranslation();
  const { reports } = comparison;
  const names = useMemo(
    () =>
      reports.map((report, index) =>
        index <= CURRENT
          ? t(`replays.report-${report.name}`)
          : ruleTexts(report, reports[CURRENT], order =>
              t(`resource-groups.scheduler-${order}`)
            ).join(' / ')
      ),
    [reports, t]
  );
  return (
    <section aria-label={t('replays.result')}>
      <Typography.Title level={2} className="bai-card-title" style={{ marginBottom: 8 }}>
        {t('replays.result')}
      </Typography.Title>
      <Typography.Paragraph type="secondary">
        {t('replays.summary', {
          sessions: comparison.sessions,
          agents: comparison.agents,
          since: formatTime(comparison.since, i18n.language),
          until: formatTime(comparison.until, i18n.language)
        })}{' '}
        {t('replays.how-to-read')}
      </Typography.Paragraph>
      <Summary reports={reports} names={names} />
      <MeasureTable reports={reports} names={names} />
      <WaitChart comparison={comparison} names={names} />
      <UtilizationChart comparison={comparison} names={names} />
      <GroupTable reports={reports} names={names} />
      <Gaps comparison={comparison} />
    </section>
  );
}

interface ReportsProps {
  reports: readonly PolicyReport[];
  names: readonly string[];
}

interface Row {
  key: string;
  label: string;
  /** Number of sessions in the row's group; absent in a row about all sessions. */
  count?: string;
  texts: readonly string[];
}

function useFormats() {
  const { i18n } = useTranslation();
  return useMemo(() => {
    const number = new Intl.NumberFormat(i18n.language, { maximumFractionDigits: 1 });
    return {
      seconds: (value: number) => formatDuration(value, i18n.language),
      number: (value: number) => number.format(value),
      percent: (value: number) => `${number.format(value)} %`
    };
  }, [i18n.language]);
}

/** For each tried policy: what it changes compared with the current policy, and for whom. */
function Summary({ reports, names }: ReportsProps) {
  const { t } = useTranslation();
  const { seconds } = useFormats();
  const current = reports[CURRENT];
  if (!current) {
    return null;
  }
  return (
    <ul style={{ paddingInlineStart: 20 }}>
      {reports.slice(CURRENT + 1).map((report, index) => {
        const user = mostChangedUser(report, current);
        return (
          <li key={index}>
            <strong>{names[CURRENT + 1 + index]}</strong>:{' '}
            {t('replays.change', {
              earlier: report.than_current?.earlier ?? 0,
              later: report.than_current?.later ?? 0,
              before: seconds(current.wait_seconds.median),
              after: seconds(report.wait_seconds.median)
            })}{' '}
            {user &&
              t('replays.change-user', {
                user: personal(user.user),
                before: seconds(user.before),
                after: seconds(user.after)
              })}
          </li>
        );
      })}
    </ul>
  );
}

const columnsOf = (first: string, names: readonly string[]): TableColumnsType<Row> => [
  { title: first, dataIndex: 'label', rowScope: 'row' },
  ...names.map((title, index) => ({
    title,
    align: 'right' as const,
    render: (_: unknown, row: Row) => row.texts[index]
  }))
];

function MeasureTable({ reports, names }: ReportsProps) {
  const { t } = useTranslation();
  const { seconds, number, percent } = useFormats();
  const row = (key: string, text: (report: PolicyReport) => string, values = {}): Row => ({
    key: key + JSON.stringify(values),
    label: t(`replays.${key}`, values),
    texts: reports.map(text)
  });
  const rows = [
    row('started', report => `${number(report.started)} / ${number(report.sessions)}`),
    row('median', report => seconds(report.wait_seconds.median)),
    row('p95', report => seconds(report.wait_seconds.p95)),
    row('longest', report => seconds(report.wait_seconds.max)),
    row('earlier-than-history', report => number(report.than_history?.earlier ?? NaN)),
    row('later-than-history', report => number(report.than_history?.later ?? NaN)),
    row('earlier-than-current', report => number(report.than_current?.earlier ?? NaN)),
    row('later-than-current', report => number(report.than_current?.later ?? NaN)),
    row('makespan', report => seconds(report.makespan_seconds)),
    row('preemptions', report => number(report.preemptions)),
    row('lost', report => seconds(report.lost_seconds)),
    ...(reports[0]?.utilization ?? []).map(({ resource }, index) =>
      row('utilization', report => percent(report.utilization[index]?.mean_percent ?? 0), {
        resource
      })
    ),
    row('fragmentation', report => percent(report.fragmentation_percent))
  ].map(({ texts, ...rest }) => ({
    ...rest,
    // NaN: the report has no such comparison.
    texts: texts.map(text => (text === 'NaN' ? '–' : text))
  }));
  return (
    <CardTable<Row>
      className="bai-wide-table"
      size="small"
      pagination={false}
      dataSource={rows}
      columns={columnsOf(t('replays.measure'), names)}
    />
  );
}

interface ChartProps {
  comparison: Comparison;
  names: readonly string[];
}

function WaitChart({ comparison, names }: ChartProps) {
  const { t } = useTranslation();
  const { seconds } = useFormats();
  const option = useMemo(
    () =>
      waitOption(
        comparison,
        names,
        { median: t('replays.median'), p95: t('replays.p95') },
        seconds
      ),
    [comparison, names, t, seconds]
  );
  const label = comparison.reports
    .map(({ wait_seconds: wait }, index) =>
      t('replays.wait-label', {
        name: names[index],
        median: seconds(wait.median),
        p95: seconds(wait.p95)
      })
    )
    .join('; ');
  return (
    <ResultSection title={t('replays.waits')}>
      <LazyChart option={option} height={CHART_HEIGHT} label={label} />
    </ResultSection>
  );
}

function UtilizationChart({ comparison, names }: ChartProps) {
  const { t } = useTranslation();
  const { percent } = useFormats();
  const resources = resourcesOf(comparison);
  const [chosen, setChosen] = useState<string>();
  const resource = chosen ?? resources[0];
  const option = useMemo(
    () => utilizationOption(comparison, names, resource ?? '', percent),
    [comparison, names, resource, percent]
  );
  if (resource === undefined) {
    return null;
  }
  const label = comparison.reports
    .map((report, index) => {
      const used = report.utilization.find(one => one.resource === resource);
      return `${names[index]}: ${percent(used?.mean_percent ?? 0)}`;
    })
    .join('; ');
  return (
    <ResultSection title={t('replays.utilization-chart')}>
      {resources.length > 1 && (
        <Segmented
          value={resource}
          options={resources}
          onChange={setChosen}
          aria-label={t('replays.resource')}
          style={{ marginBottom: 8 }}
        />
      )}
      <LazyChart option={option} height={CHART_HEIGHT} label={label} />
    </ResultSection>
  );
}

function ResultSection(props: { title: string; children: React.ReactNode }) {
  return (
    <section style={{ marginTop: 24 }}>
      <Typography.Title level={2} className="bai-card-title" style={{ marginBottom: 8 }}>
        {props.title}
      </Typography.Title>
      {props.children}
    </section>
  );
}

function GroupTable({ reports, names }: ReportsProps) {
  const { t } = useTranslation();
  const { seconds, number } = useFormats();
  const [grouping, setGrouping] = useState<Grouping>('project');
  const groups = reports.map(
    report => new Map(report[GROUPINGS[grouping]].map(group => [keyOf(group), group]))
  );
  const labelOf = ({ domain, name }: GroupWaits) => {
    if (!name) {
      return t('replays.other-domains');
    }
    return domain ? `${name} (${domain})` : name;
  };
  const rows = [...(groups[0]?.values() ?? [])].map((group): Row => {
    const key = keyOf(group);
    return {
      key,
      label: labelOf(group),
      count: number(group.sessions),
      texts: groups.map(byKey => {
        const wait = byKey.get(key)?.wait_seconds;
        return wait ? `${seconds(wait.median)} / ${seconds(wait.p95)}` : number(0);
      })
    };
  });
  const columns = columnsOf(t(`replays.by-${grouping}`), names);
  return (
    <ResultSection title={t('replays.waits-by')}>
      <Flex style={{ marginBottom: 8 }}>
        <Segmented<Grouping>
          value={grouping}
          options={(Object.keys(GROUPINGS) as Grouping[]).map(value => ({
            value,
            label: t(`replays.by-${value}`)
          }))}
          onChange={setGrouping}
          aria-label={t('replays.waits-by')}
        />
      </Flex>
      <CardTable<Row>
        className="bai-wide-table"
        size="small"
        pagination={{ pageSize: 10, hideOnSinglePage: true, showSizeChanger: false }}
        dataSource={rows}
        columns={columns.toSpliced(1, 0, {
          title: t('replays.sessions'),
          dataIndex: 'count',
          align: 'right'
        })}
      />
    </ResultSection>
  );
}

function Gaps({ comparison }: { comparison: Comparison }) {
  const { t, i18n } = useTranslation();
  return (
    <ResultSection title={t('replays.gaps')}>
      <ul style={{ margin: 0, paddingInlineStart: 20 }}>
        {comparison.gaps.map(({ kind, count, message }) => {
          const key = `replays.gap-${kind}`;
          return (
            <li key={kind}>
              {i18n.exists(key) ? t(key) : message} ({count})
            </li>
          );
        })}
      </ul>
    </ResultSection>
  );
}
