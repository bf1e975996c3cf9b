import { useCallback, useEffect } from 'react';
import { App } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { useNow } from '../../components/time';
import { onChange } from '../../data/events';
import { receivedInvitationsQuery } from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';
import { addNotice, openNotices, type Notice } from '../../data/notices';
import { currentPreferences } from '../../data/accounts/preferences';
import { queries } from '../../data/queries';
import { endOf, runningSessionsQuery, sessionQuery } from '../../data/sessions/sessions';
import { NoticeLink, noticeInfo, noticeText } from './noticeText';
import { SessionNotice } from '../SessionNotice';

const TYPES = {
  RUNNING: 'success',
  ERROR: 'error',
  'stops-soon': 'warning',
  share: 'info'
} as const;
// The notice of a started session is shown for this time, so that its buttons can be used.
const NOTICE_SECONDS = 15;
const WARNING_MILLIS = 10 * 60_000;
// Poll: activity in a session postpones its end without an event.
const REFRESH_MILLIS = 60_000;

type NewNotice = Omit<Notice, 'at' | 'isRead'>;

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
        if (kind !== 'status' || (status !== 'RUNNING' && status !== 'ERROR')) {
          return;
        }
        void queries.query(sessionQuery(id)).then(session => {
          if (session.owner === me?.username) {
            const { name, status_info: info } = session;
            show({ key: `${id}:${status}`, kind: status, name, info, session: id });
          }
        });
      }),
    [me, show]
  );
  useStopWarnings(me?.username, show);
  useShareNotices(me?.id, show);
}

type Notify = (notice: NewNotice) => void;

function useNotify(): Notify {
  const { t } = useTranslation();
  const { notification } = App.useApp();
  return useCallback(
    notice => {
      if (!addNotice(notice)) {
        return;
      }
      const title = noticeText(t, notice);
      notification[TYPES[notice.kind]]({
        key: notice.key,
        placement: 'bottomRight',
        title,
        ...(notice.kind === 'RUNNING'
          ? { description: <SessionNotice id={notice.session} />, duration: NOTICE_SECONDS }
          : { description: noticeInfo(notice), actions: <NoticeLink notice={notice} /> })
      });
      if (document.hidden && currentPreferences().hasDesktopNotices && 'Notification' in window) {
        new Notification(title, { body: noticeInfo(notice), tag: notice.key });
      }
    },
    [notification, t]
  );
}

function useStopWarnings(owner: string | undefined, show: Notify): void {
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
        const { id, name, notices } = session;
        const key = `${id}:stops-soon:${end.slice(0, 16)}`;
        show({ key, kind: 'stops-soon', name, info: notices.join('\n'), session: id });
      }
    }
  }, [running.data, now, show]);
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
