import { App, Button, Flex, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatSeconds, formatTime, useNow } from '../../../components/time';
import { reasonText } from '../../../i18n/reasonText';
import {
  stoppingChecks,
  useChangeSession,
  type IdleCheck,
  type Session,
  type SessionChange
} from '../../../data/sessions/sessions';

const WARNING_SECONDS = 600;

/** Whether the drawer shows a check: the check has an end or allows exclusion. */
export const isShown = (check: IdleCheck) => check.ends_at !== null || check.allows_exclusion;

/** Whether the drawer has a time limit to show for a running session. */
export const hasLimits = (session: Session) =>
  session.idle_ends_at !== null ||
  session.ends_at !== null ||
  stoppingChecks(session).some(isShown);

/** The end set by an idle checker, the rule, and buttons to postpone or prevent the end. */
export function CheckLimit({ check, session }: { check: IdleCheck; session: Session }) {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const change = useChangeSession(session.id);
  const { checker } = check;
  const run = (what: SessionChange, done: string) => () =>
    change.mutate(what, {
      onSuccess: () => void message.success(t(done, { checker })),
      onError: (error: Error) => void message.error(error.message)
    });
  const isExcluded = check.status === 'excluded';
  return (
    <Flex vertical gap={4}>
      <Flex wrap gap="small" align="center">
        {check.ends_at === null ? (
          <Typography.Text type="secondary">
            {t(isExcluded ? 'sessions.checker-excluded' : 'sessions.checker-active', { checker })}
          </Typography.Text>
        ) : (
          <CheckCountdown check={check} end={check.ends_at} />
        )}
        {check.ends_at !== null && check.type !== 'session-lifetime' && (
          <Button
            size="small"
            disabled={check.keep_alives_left === 0}
            loading={change.isPending}
            onClick={run({ kind: 'keep-alive' }, 'sessions.checker-kept')}
          >
            {t('sessions.keep-alive-left', { count: check.keep_alives_left })}
          </Button>
        )}
        {check.allows_exclusion && (
          <Button
            size="small"
            loading={change.isPending}
            onClick={run(
              { kind: 'exclusion', isExcluded: !isExcluded },
              isExcluded ? 'sessions.checker-included' : 'sessions.checker-excluded'
            )}
          >
            {t(isExcluded ? 'sessions.checker-include' : 'sessions.checker-exclude')}
          </Button>
        )}
      </Flex>
      {check.status === 'idle' && (
        <Typography.Text type="secondary">
          {reasonText(i18n, { message: check.reason, coded: check.coded })}
        </Typography.Text>
      )}
    </Flex>
  );
}

function CheckCountdown({ check, end }: { check: IdleCheck; end: string }) {
  const { t, i18n } = useTranslation();
  const seconds = Math.max(0, (Date.parse(end) - useNow()) / 1000);
  return (
    <Typography.Text
      type={seconds < WARNING_SECONDS ? 'danger' : 'secondary'}
      title={formatTime(end, i18n.language)}
    >
      {t('sessions.checker-ends', {
        time: formatSeconds(seconds, i18n.language),
        checker: check.checker
      })}
    </Typography.Text>
  );
}
