import { Alert, Flex, Progress, Statistic, Table, Typography } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { formatDuration, formatTime } from '../../components/time';
import type { IdleReplay } from '../../data/sessions/idleReplays';
import { freedPercent, savedSeconds, totalsOf } from './replayTotals';

// Interval of the samples of the last hour.
const FINE_SECONDS = 15;

/** The result of a replay: the totals, and the sessions that would have been stopped. */
export function ReplayedStops({ result }: { result: IdleReplay }) {
  const { t, i18n } = useTranslation();
  const { language } = i18n;
  const hours = (value: number) =>
    value.toLocaleString(language, { maximumFractionDigits: value < 10 ? 2 : 0 });
  const totals = totalsOf(result);
  const time = (at: string) => <span className="bai-time">{formatTime(at, language)}</span>;
  return (
    <Flex vertical gap="middle">
      <Flex wrap gap="large">
        <Statistic title={t('idle-checkers.judged')} value={result.judged} />
        <Statistic title={t('idle-checkers.stopped')} value={result.stopped} />
        <Statistic title={t('idle-checkers.wrong')} value={result.stopped_wrongly} />
        {totals.map(({ title, freed, judged }) => (
          <Statistic key={title} title={t(title)} value={`${hours(freed)} / ${hours(judged)}`} />
        ))}
      </Flex>
      <Typography.Text type="secondary">
        {t('idle-checkers.replay-interval', {
          interval: formatDuration(result.interval_seconds, language)
        })}{' '}
        {t('idle-checkers.wrong-help')}
        {result.interval_seconds > FINE_SECONDS && ` ${t('idle-checkers.replay-coarse')}`}
      </Typography.Text>
      {totals
        .filter(({ judged }) => judged > 0)
        .map(({ share, ...amounts }) => (
          <Flex vertical key={share}>
            <Typography.Text type="secondary">{t(share)}</Typography.Text>
            <Progress percent={freedPercent(amounts)} aria-label={t(share)} />
          </Flex>
        ))}
      {!result.is_complete && (
        <Alert type="warning" showIcon title={t('idle-checkers.incomplete')} />
      )}
      <Table
        size="small"
        rowKey="session_id"
        dataSource={result.stops}
        pagination={{ pageSize: 10, hideOnSinglePage: true }}
        scroll={{ x: 'max-content' }}
        locale={{
          // The default color of this text has too little contrast.
          emptyText: <Typography.Text>{t('idle-checkers.no-stops')}</Typography.Text>
        }}
        columns={[
          {
            title: t('idle-decisions.session'),
            dataIndex: 'session',
            render: (name: string, { session_id: id }) => (
              <Link to="/sessions" search={{ tab: 'all', session: id }}>
                {name}
              </Link>
            )
          },
          { title: t('idle-decisions.owner'), dataIndex: 'owner' },
          { title: t('idle-checkers.stopped-at'), dataIndex: 'stopped_at', render: time },
          {
            title: t('idle-checkers.earlier'),
            key: 'earlier',
            render: (_, stop) => formatDuration(savedSeconds(stop), language)
          },
          ...totals.map(({ column, hours: field }) => ({
            title: t(column),
            dataIndex: field,
            render: hours
          })),
          {
            title: t('idle-checkers.used-again'),
            dataIndex: 'used_again_at',
            render: (at: string | null) => (at === null ? '–' : time(at))
          }
        ]}
      />
    </Flex>
  );
}
