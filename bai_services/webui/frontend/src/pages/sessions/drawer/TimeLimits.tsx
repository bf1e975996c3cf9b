import type { ReactNode } from 'react';
import { App, Button, Flex, Popover, Typography } from 'antd';
import { QuestionCircleOutlined } from '@ant-design/icons';
import { useTranslation } from 'react-i18next';
import { CheckLimit } from './CheckLimit';
import {
  endingRule,
  stoppingChecks,
  useChangeSession,
  type Session
} from '../../../data/sessions/sessions';
import { reasonText } from '../../../i18n/reasonText';
import { EndCountdown } from './EndCountdown';

const HOUR = 3600;

/** Whether a session runs and has a time limit to show. */
export const hasLimits = (session: Session) =>
  session.status === 'RUNNING' &&
  (session.idle_ends_at !== null ||
    session.ends_at !== null ||
    endingRule(session) !== null ||
    stoppingChecks(session).length > 0);

/** The time limits of a session (see `hasLimits`), with countdowns and buttons to extend them. */
export function TimeLimits({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const change = useChangeSession(session.id);
  const { idle_ends_at: idleEnd, ends_at: end, lifetime } = session;
  const checks = stoppingChecks(session);
  const rule = endingRule(session);
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
      {rule && <RuleLimit rule={rule} />}
      {checks.map(check => (
        <CheckLimit key={check.checker_id} check={check} session={session} />
      ))}
    </Flex>
  );
}

/** The countdown to a stop that no button postpones, and the rule that causes it. */
function RuleLimit({ rule }: { rule: NonNullable<Session['end_rule']> }) {
  const { i18n } = useTranslation();
  return (
    <Flex vertical gap={4}>
      <EndCountdown end={rule.ends_at} text={time => time} />
      <Typography.Text type="secondary">
        {reasonText(i18n, { message: rule.reason, coded: rule.coded })}
      </Typography.Text>
    </Flex>
  );
}

interface LimitProps {
  name: 'idle' | 'lifetime';
  end: string;
  children: ReactNode;
}

function Limit({ name, end, children }: LimitProps) {
  const { t } = useTranslation();
  return (
    <Flex wrap gap="small" align="center">
      <EndCountdown end={end} text={time => t(`sessions.${name}-ends`, { time })} />
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
