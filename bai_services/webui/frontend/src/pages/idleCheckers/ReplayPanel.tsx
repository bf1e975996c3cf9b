import { useEffect, useRef, useState } from 'react';
import { Alert, Button, Flex, Select, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatDuration } from '../../components/time';
import { useIdleReplay } from '../../data/sessions/idleReplays';
import { ReplayedStops } from './ReplayedStops';

const HOUR_SECONDS = 3600;
const DAY_SECONDS = 24 * HOUR_SECONDS;
const PERIODS = [HOUR_SECONDS, DAY_SECONDS, 7 * DAY_SECONDS, 30 * DAY_SECONDS];

interface ReplayPanelProps {
  checker: string;
  /** The window of the checker: a shorter period cannot be replayed. */
  windowSeconds: number;
}

/** The sessions that a utilization checker would have stopped in a recorded period. */
export function ReplayPanel({ checker, windowSeconds }: ReplayPanelProps) {
  const { t, i18n } = useTranslation();
  const [seconds, setSeconds] = useState(DAY_SECONDS);
  const replay = useIdleReplay();
  const { data: result, error } = replay;
  const shown = useRef<HTMLDivElement>(null);
  // Scroll to the result, which is often outside of the drawer's visible part.
  useEffect(() => {
    if (result ?? error) {
      shown.current?.scrollIntoView({ block: 'start' });
    }
  }, [result, error]);
  return (
    <Flex vertical gap="middle" style={{ marginTop: 16 }}>
      <Typography.Title level={2} style={{ margin: 0, fontSize: 16 }}>
        {t('idle-checkers.replay')}
      </Typography.Title>
      <Typography.Text type="secondary">{t('idle-checkers.replay-help')}</Typography.Text>
      <Flex wrap gap="small">
        <Select
          value={seconds}
          onChange={value => {
            setSeconds(value);
            replay.reset();
          }}
          aria-label={t('idle-checkers.replay-period')}
          style={{ minWidth: 160 }}
          options={PERIODS.filter(period => period >= windowSeconds).map(period => ({
            value: period,
            label: t('idle-checkers.replay-last', {
              time: formatDuration(period, i18n.language)
            })
          }))}
        />
        <Button loading={replay.isPending} onClick={() => replay.mutate({ checker, seconds })}>
          {t('idle-checkers.replay-run')}
        </Button>
      </Flex>
      <div aria-live="polite" ref={shown}>
        {error && <Alert type="error" showIcon title={error.message} />}
        {result && <ReplayedStops result={result} />}
      </div>
    </Flex>
  );
}
