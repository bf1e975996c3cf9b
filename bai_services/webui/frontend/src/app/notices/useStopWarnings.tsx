import { useEffect, useRef } from 'react';
import { App, Flex } from 'antd';
import type { TFunction } from 'i18next';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { formatDuration, formatSoon, useNow } from '../../components/time';
import { addNotice, hasNotice } from '../../data/notices';
import { refreshNotifications } from '../../data/notifications';
import { afterStopText } from '../../data/sessions/endTexts';
import { runningSessionsQuery, type Session } from '../../data/sessions/sessions';
import { stopWarning, warningKeys, type StopWarning } from '../../data/sessions/stopWarnings';
import { reasonText } from '../../i18n/reasonText';
import { StopActions } from '../../pages/sessions/StopActions';
import { showOnDesktop } from './desktopNotice';

const CLOCK_MILLIS = 5_000;
// Poll: activity in a session postpones its end without an event.
const REFRESH_MILLIS = 60_000;
const REFRESH_NEAR_END_MILLIS = 15_000;

const toastKey = (session: string) => `${session}:stops`;

/**
 * Show a warning for each session that is stopped soon. The warning remains, with the remaining
 * time, until the stop is postponed or the user closes it. A closed warning is shown again two
 * minutes before the stop. Returns whether there is a warning.
 */
export function useStopWarnings(owner: string | undefined): boolean {
  const { t, i18n } = useTranslation();
  const { notification } = App.useApp();
  const now = useNow(CLOCK_MILLIS);
  const running = useQuery({
    ...runningSessionsQuery(owner ?? ''),
    enabled: owner !== undefined,
    refetchInterval: ({ state }) =>
      warningsOf(state.data, Date.now()).length > 0 ? REFRESH_NEAR_END_MILLIS : REFRESH_MILLIS
  });
  // The sessions whose warning is shown, with the current warning.
  const shown = useRef(new Map<string, StopWarning>());

  useEffect(() => {
    const due = new Map(warningsOf(running.data, now).map(each => [each.session.id, each]));
    for (const id of shown.current.keys()) {
      if (!due.has(id)) {
        shown.current.delete(id);
        notification.destroy(toastKey(id));
      }
    }
    for (const [id, warning] of due) {
      const isOpen = shown.current.has(id);
      if (!isOpen && hasNotice(warningKeys(warning))) {
        continue; // the user has closed it
      }
      shown.current.set(id, warning);
      if (isOpen) {
        continue;
      }
      const { session } = warning;
      const title = t('notices.stops-soon', { name: session.name });
      void refreshNotifications();
      showOnDesktop(title, stopText(t, i18n.language, warning), toastKey(id));
      notification.warning({
        key: toastKey(id),
        placement: 'bottomRight',
        duration: 0,
        title,
        description: <Description id={id} owner={owner ?? ''} />,
        actions: <Actions id={id} owner={owner ?? ''} />,
        onClose: () => {
          const closed = shown.current.get(id);
          shown.current.delete(id);
          if (closed) {
            addNotice(noticeOf(closed));
          }
        }
      });
    }
  }, [running.data, now, notification, owner, t, i18n]);
  return warningsOf(running.data, now).length > 0;
}

/** Move the focus to the buttons of the warnings, which are at the end of the document. */
export const focusWarnings = () =>
  document.querySelector<HTMLElement>('.ant-notification-notice button')?.focus();

const warningsOf = (sessions: readonly Session[] | undefined, now: number) =>
  (sessions ?? []).flatMap(session => stopWarning(session, now) ?? []);

function noticeOf(warning: StopWarning) {
  const [key = ''] = warningKeys(warning);
  const { id, name } = warning.session;
  return { key, kind: 'stops-soon', name, info: '', session: id } as const;
}

const stopText = (t: TFunction, language: string, { endsAt }: StopWarning) =>
  t('notices.stops-at', { time: formatSoon(new Date(endsAt).toISOString(), language) });

interface PartProps {
  id: string;
  owner: string;
}

/** The current state of a session with a warning. */
function useWarning({ id, owner }: PartProps, now: number): StopWarning | undefined {
  const { data } = useQuery({
    ...runningSessionsQuery(owner),
    select: sessions => sessions.find(session => session.id === id)
  });
  return data && stopWarning(data, now);
}

/** The time of the stop, the remaining time, and the rule or the preemption that stops it. */
function Description(props: PartProps) {
  const { t, i18n } = useTranslation();
  const now = useNow();
  const warning = useWarning(props, now);
  if (!warning) {
    return null;
  }
  const { session, endsAt } = warning;
  const left = Math.max(0, (endsAt - now) / 1000);
  const rule = session.end_rule;
  const after = afterStopText(session);
  return (
    <>
      {stopText(t, i18n.language, warning)}{' '}
      {/* A screen reader would read a toast again whenever this changes. */}
      <strong aria-hidden className="bai-time">
        {left === 0
          ? t('notices.stopping-now')
          : t('notices.left', { time: formatDuration(left, i18n.language) })}
      </strong>
      {rule && <div>{reasonText(i18n, { message: rule.reason, coded: rule.coded })}</div>}
      {after && <div>{t(after)}</div>}
    </>
  );
}

function Actions(props: PartProps) {
  const { t } = useTranslation();
  const warning = useWarning(props, useNow(CLOCK_MILLIS));
  return (
    <Flex wrap gap="small" align="center" justify="end">
      <Link to="/sessions" search={{ tab: 'all', session: props.id }}>
        {t('notices.show')}
      </Link>
      {warning && <StopActions session={warning.session} />}
    </Flex>
  );
}
