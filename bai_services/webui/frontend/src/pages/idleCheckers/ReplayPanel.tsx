import { useState } from 'react';
import { Alert, Button, Flex, Progress, Select, Statistic, Table, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatTime } from '../../components/time';
import { useIdleReplay } from '../../data/sessions/idleReplays';

const DAYS = [1, 7, 30];

/** The sessions that a utilization checker would have stopped in a recorded period. */
export function ReplayPanel({ checker }: { checker: string }) {
  const { t, i18n } = useTranslation();
  const [days, setDays] = useState(1);
  const replay = useIdleReplay();
  const { data: result } = replay;
  const total = result?.judged_device_hours ?? 0;
  const percent = total > 0 ? Math.round((100 * (result?.device_hours_freed ?? 0)) / total) : 0;
  return (
    <Flex vertical gap="middle" style={{ marginTop: 16 }}>
      <Typography.Title level={5} style={{ margin: 0 }}>
        {t('idle-checkers.replay')}
      </Typography.Title>
      <Typography.Text type="secondary">{t('idle-checkers.replay-help')}</Typography.Text>
      <Flex wrap gap="small">
        <Select
          value={days}
          onChange={value => {
            setDays(value);
            replay.reset();
          }}
          aria-label={t('idle-checkers.replay-period')}
          style={{ minWidth: 120 }}
          options={DAYS.map(count => ({
            value: count,
            label: t('idle-checkers.replay-days', { count })
          }))}
        />
        <Button loading={replay.isPending} onClick={() => replay.mutate({ checker, days })}>
          {t('idle-checkers.replay-run')}
        </Button>
      </Flex>
      <div aria-live="polite">
        {replay.error && <Alert type="error" showIcon title={replay.error.message} />}
        {result && (
          <Flex vertical gap="middle">
            <Flex wrap gap="large">
              <Statistic title={t('idle-checkers.judged')} value={result.judged} />
              <Statistic title={t('idle-checkers.stopped')} value={result.stopped} />
              <Statistic title={t('idle-checkers.wrong')} value={result.stopped_wrongly} />
              <Statistic title={t('idle-checkers.freed')} value={result.device_hours_freed} />
            </Flex>
            <Flex vertical>
              <Typography.Text type="secondary">{t('idle-checkers.freed-share')}</Typography.Text>
              <Progress percent={percent} aria-label={t('idle-checkers.freed-share')} />
            </Flex>
            {!result.is_complete && (
              <Alert type="warning" showIcon title={t('idle-checkers.incomplete')} />
            )}
            <Table
              size="small"
              rowKey="session_id"
              dataSource={result.stops}
              pagination={{ pageSize: 10, hideOnSinglePage: true }}
              scroll={{ x: 'max-content' }}
              locale={{ emptyText: t('idle-checkers.no-stops') }}
              columns={[
                { title: t('idle-decisions.session'), dataIndex: 'session' },
                { title: t('idle-decisions.owner'), dataIndex: 'owner' },
                {
                  title: t('idle-checkers.stopped-at'),
                  dataIndex: 'stopped_at',
                  render: (at: string) => formatTime(at, i18n.language)
                },
                { title: t('idle-checkers.device-hours'), dataIndex: 'device_hours' },
                {
                  title: t('idle-checkers.used-again'),
                  dataIndex: 'used_again_at',
                  render: (at: string | null) => (at === null ? '–' : formatTime(at, i18n.language))
                }
              ]}
            />
          </Flex>
        )}
      </div>
    </Flex>
  );
}
