import { App, Button, Flex, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { formatSeconds, formatSoon, useNow } from '../../../components/time';
import { reasonText } from '../../../i18n/reasonText';
import {
  useChangeSession,
  type IdleCheck,
  type Session,
  type SessionChange
} from '../../../data/sessions/sessions';
import { EndCountdown } from './EndCountdown';

/** Texts for statuses of a check without an end. */
const STATES: Readonly<Record<string, string>> = {
  active: 'sessions.checker-in-use',
  excluded: 'sessions.checker-excluded',
  idle: 'sessions.checker-pressure'
};

/**
 * The rule of an idle checker, the end that it sets or how close it is, and buttons to postpone or
 * prevent the end.
 */
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
          <CheckState check={check} />
        ) : (
          <EndCountdown
            end={check.ends_at}
            text={time => t('sessions.checker-ends', { time, checker })}
          />
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
      <Typography.Text type="secondary">
        {reasonText(i18n, { message: check.reason, coded: check.coded })}
      </Typography.Text>
    </Flex>
  );
}

/** How close a checker is to the stop of a session whose countdown has not begun. */
function CheckState({ check }: { check: IdleCheck }) {
  const { t, i18n } = useTranslation();
  const now = useNow();
  const { checker, earliest_end_at: end, earliest_warning_at: warning } = check;
  const isExpected = end !== null && check.status !== 'excluded';
  const seconds = Math.max(0, (Date.parse(end ?? '') - now) / 1000);
  return (
    <Typography.Text type="secondary">
      {isExpected
        ? t('sessions.checker-expected', { time: formatSeconds(seconds, i18n.language), checker })
        : t(STATES[check.status] ?? 'sessions.checker-unjudged', { checker })}
      {isExpected && warning !== null && Date.parse(warning) > now && (
        <> {t('sessions.checker-warning', { time: formatSoon(warning, i18n.language) })}</>
      )}
    </Typography.Text>
  );
}
