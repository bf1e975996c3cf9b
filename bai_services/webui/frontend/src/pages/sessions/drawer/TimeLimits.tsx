import type { ReactNode } from 'react';
import { App, Button, Flex, Popover, Typography } from 'antd';
import { QuestionCircleOutlined } from '@ant-design/icons';
import { useTranslation } from 'react-i18next';
import { CheckLimit } from './CheckLimit';
import { formatSeconds, formatTime, useNow } from '../../../components/time';
import { stoppingChecks, useChangeSession, type Session } from '../../../data/sessions/sessions';

const WARNING_SECONDS = 600;
const HOUR = 3600;

/** The time limits of a running session with their countdowns, and buttons to extend them. */
export function TimeLimits({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const change = useChangeSession(session.id);
  const { idle_ends_at: idleEnd, ends_at: end, lifetime } = session;
  const checks = stoppingChecks(session);
  if (session.status !== 'RUNNING' || (!idleEnd && !end && checks.length === 0)) {
    return null;
  }
  const addable = Math.min(lifetime?.addable_seconds ?? 0, HOUR);
  const say = (key: string) => ({
    onSuccess: () => void message.success(t(key)),
    onError: (error: Error) => void message.error(error.message)
  });
  return (
    <Flex vertical gap={4}>
      {idleEnd && (
        <Limit name="idle" end={idleEnd}>
          <Button
            size="small"
            onClick={() => change.mutate({ kind: 'activity' }, say('sessions.kept-alive'))}
          >
            {t('sessions.keep-alive')}
          </Button>
        </Limit>
      )}
      {end && (
        <Limit name="lifetime" end={end}>
          {addable > 0 && (
            <Button
              size="small"
              onClick={() =>
                change.mutate({ kind: 'lifetime', seconds: addable }, say('sessions.extended'))
              }
            >
              {t('sessions.extend')}
            </Button>
          )}
        </Limit>
      )}
      {checks.map(check => (
        <CheckLimit key={check.checker_id} check={check} session={session} />
      ))}
    </Flex>
  );
}

interface LimitProps {
  name: 'idle' | 'lifetime';
  end: string;
  children: ReactNode;
}

function Limit({ name, end, children }: LimitProps) {
  const { t, i18n } = useTranslation();
  const seconds = Math.max(0, (Date.parse(end) - useNow()) / 1000);
  const time = formatSeconds(seconds, i18n.language);
  return (
    <Flex wrap gap="small" align="center">
      <Typography.Text
        type={seconds < WARNING_SECONDS ? 'danger' : 'secondary'}
        title={formatTime(end, i18n.language)}
      >
        {seconds === 0 ? t('sessions.stopping-now') : t(`sessions.${name}-ends`, { time })}
      </Typography.Text>
      {children}
      <Popover
        trigger="click"
        title={t(`sessions.${name}-limit`)}
        content={<div style={{ maxWidth: 320 }}>{t(`sessions.${name}-help`)}</div>}
      >
        <Button
          type="text"
          size="small"
          icon={<QuestionCircleOutlined />}
          aria-label={t('sessions.limit-help', { limit: t(`sessions.${name}-limit`) })}
        />
      </Popover>
    </Flex>
  );
}
