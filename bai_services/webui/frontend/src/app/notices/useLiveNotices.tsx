import { useCallback, useEffect } from 'react';
import { App, Button } from 'antd';
import i18next, { type i18n as I18n } from 'i18next';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { formatSoon, useNow } from '../../components/time';
import { onChange } from '../../data/events';
import { receivedInvitationsQuery } from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';
import { refreshNotifications } from '../../data/notifications';
import { addNotice, openNotices, type Notice } from '../../data/notices';
import { currentPreferences } from '../../data/accounts/preferences';
import {
  endingCheck,
  endOf,
  hasFailed,
  isEnded,
  readSession,
  runningSessionsQuery,
  sessionQuery,
  useChangeSession,
  type Session
} from '../../data/sessions/sessions';
import { reasonText, statusText } from '../../i18n/reasonText';
import { NoticeLink, noticeInfo, noticeText } from './noticeText';
import { SessionNotice } from '../SessionNotice';

const TYPES = {
  RUNNING: 'success',
  ERROR: 'error',
  failed: 'error',
  'stops-soon': 'warning',
  share: 'info'
} as const;
// The notice of a started session is shown for this time, so that its buttons can be used.
const NOTICE_SECONDS = 15;
const WARNING_MILLIS = 10 * 60_000;
// Poll: activity in a session postpones its end without an event.
const REFRESH_MILLIS = 60_000;

// The statuses that can be announced; TERMINATED is announced only if the session has failed.
const ANNOUNCED: readonly string[] = ['RUNNING', 'ERROR', 'TERMINATED'];

type NewNotice = Omit<Notice, 'at'>;

const keyOf = (session: string, kind: Notice['kind']) => `${session}:${kind}`;

// The variable that the sessions of pipeline tasks have.
const RUN_VARIABLE = 'PIPELINE_RUN';

/**
 * The notice about the status of a session, or undefined. Tasks of pipelines have no notices,
 * because a run can have 1,000 of them.
 */
export function noticeOf(session: Session): NewNotice | undefined {
  if (RUN_VARIABLE in session.environ) {
    return undefined;
  }
  const { id, name, status, exit_code: code } = session;
  const info = statusText(i18next, session);
  if (hasFailed(session)) {
    const exit = code === null ? {} : { code };
    return { key: keyOf(id, 'failed'), kind: 'failed', name, info, session: id, ...exit };
  }
  return status === 'RUNNING' || status === 'ERROR'
    ? { key: keyOf(id, status), kind: status, name, info, session: id }
    : undefined;
}

/**
 * Notify users when their sessions start, fail or are about to stop, and when a folder is shared
 * with them.
 */
export function useLiveNotices(): void {
  const { data: me } = useQuery(meQuery);
  const show = useNotify();
  useEffect(() => {
    if (me) {
      openNotices(me.username);
    }
  }, [me]);

  useEffect(
    () =>
      onChange(({ kind, status, session_id: id }) => {
        if (kind !== 'status' || !ANNOUNCED.includes(status)) {
          return;
        }
        // Bypass the cache: a short session may have ended since the last request.
        void readSession(id).then(
          session => {
            const notice = session.owner === me?.username ? noticeOf(session) : undefined;
            if (notice) {
              show(notice);
            }
          },
          () => undefined // the lists, which are read at the same time, report the error
        );
      }),
    [me, show]
  );
  useStopWarnings(me?.username, show);
  useShareNotices(me?.id, show);
}

/** `keepAlives`: number of keep-alives that the session has left. */
type Notify = (notice: NewNotice, keepAlives?: number) => void;

function useNotify(): Notify {
  const { t } = useTranslation();
  const { notification } = App.useApp();
  return useCallback(
    (notice, keepAlives = 0) => {
      if (!addNotice(notice)) {
        return;
      }
      void refreshNotifications();
      const title = noticeText(t, notice);
      if (notice.kind === 'ERROR' || notice.kind === 'failed') {
        notification.destroy(keyOf(notice.session, 'RUNNING'));
      }
      notification[TYPES[notice.kind]]({
        key: notice.key,
        placement: 'bottomRight',
        title: notice.kind === 'RUNNING' ? <StartTitle notice={notice} /> : title,
        ...(notice.kind === 'RUNNING'
          ? { description: <SessionNotice id={notice.session} />, duration: NOTICE_SECONDS }
          : { description: noticeInfo(notice), actions: <NoticeLink notice={notice} /> }),
        ...(keepAlives > 0 && {
          actions: (
            <>
              <NoticeLink notice={notice} /> <KeepAlive notice={notice} left={keepAlives} />
            </>
          ),
          duration: NOTICE_SECONDS
        })
      });
      if (document.hidden && currentPreferences().hasDesktopNotices && 'Notification' in window) {
        new Notification(title, { body: noticeInfo(notice), tag: notice.key });
      }
    },
    [notification, t]
  );
}

/** Postpones the end of a session and closes the notice. */
function KeepAlive({ notice, left }: { notice: NewNotice; left: number }) {
  const { t } = useTranslation();
  const { message, notification } = App.useApp();
  const change = useChangeSession(notice.session);
  const keep = () =>
    change.mutate(
      { kind: 'keep-alive' },
      {
        onSuccess: () => {
          notification.destroy(notice.key);
          void message.success(t('sessions.checker-kept'));
        },
        onError: error => void message.error(error.message)
      }
    );
  return (
    <Button size="small" loading={change.isPending} onClick={keep}>
      {t('sessions.keep-alive-left', { count: left })}
    </Button>
  );
}

/** The notice that a session is running, or has already ended. */
function StartTitle({ notice }: { notice: NewNotice }) {
  const { t } = useTranslation();
  const { data: session } = useQuery(sessionQuery(notice.session));
  return session && isEnded(session)
    ? t('notices.ended', { name: notice.name })
    : noticeText(t, notice);
}

/** The rule or the preemption that ends a session first. */
const endReason = (i18n: I18n, { end_rule: rule }: Session) =>
  rule ? reasonText(i18n, { message: rule.reason, coded: rule.coded }) : '';

function useStopWarnings(owner: string | undefined, show: Notify): void {
  const { t, i18n } = useTranslation();
  const now = useNow(REFRESH_MILLIS / 2);
  const running = useQuery({
    ...runningSessionsQuery(owner ?? ''),
    enabled: owner !== undefined,
    refetchInterval: REFRESH_MILLIS
  });
  useEffect(() => {
    for (const session of running.data ?? []) {
      const end = endOf(session);
      if (end && Date.parse(end) - now < WARNING_MILLIS) {
        const { id, name } = session;
        const key = `${id}:stops-soon:${end.slice(0, 16)}`;
        const info = [
          t('notices.stops-at', { time: formatSoon(end, i18n.language) }),
          endReason(i18n, session)
        ];
        show(
          { key, kind: 'stops-soon', name, info: info.join(' ').trim(), session: id },
          endingCheck(session)?.keep_alives_left
        );
      }
    }
  }, [running.data, now, show, t, i18n]);
}

function useShareNotices(userId: string | undefined, show: Notify): void {
  const { data } = useQuery({
    ...receivedInvitationsQuery(userId ?? ''),
    enabled: userId !== undefined
  });
  useEffect(() => {
    for (const { id, vfolder, inviter } of data ?? []) {
      show({ key: id, kind: 'share', name: vfolder, info: inviter, session: '' });
    }
  }, [data, show]);
}
