import { useCallback, useEffect } from 'react';
import { App } from 'antd';
import i18next from 'i18next';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { onChange, type Change } from '../../data/events';
import { receivedInvitationsQuery } from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';
import { refreshNotifications } from '../../data/notifications';
import { addNotice, openNotices, type Notice } from '../../data/notices';
import {
  hasFailed,
  isEnded,
  readSession,
  sessionQuery,
  type Session
} from '../../data/sessions/sessions';
import { statusText } from '../../i18n/reasonText';
import { NoticeLink, noticeInfo, noticeText } from './noticeText';
import { SessionNotice } from '../SessionNotice';
import { showOnDesktop } from './desktopNotice';
import { useStopWarnings } from './useStopWarnings';

const TYPES = {
  RUNNING: 'success',
  ERROR: 'error',
  failed: 'error',
  share: 'info'
} as const;
// The notice of a started session is shown for this time, so that its buttons can be used.
const NOTICE_SECONDS = 15;

// The statuses that can be announced; TERMINATED is announced only if the session has failed.
const ANNOUNCED: readonly string[] = ['RUNNING', 'ERROR', 'TERMINATED'];

type NewNotice = Omit<Notice, 'at'> & { kind: keyof typeof TYPES };

const keyOf = (session: string, kind: NewNotice['kind']) => `${session}:${kind}`;

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
 * Whether the change can have a notice for this user. The sessions of others must not be read: the
 * audit log would record an access.
 */
export const concerns = (
  { kind, status, owner_id: owner }: Omit<Change, 'session_id' | 'folder_id'>,
  userId: string | undefined
) => kind === 'status' && ANNOUNCED.includes(status) && owner === userId;

/**
 * Notify users when their sessions start, fail or are about to stop, and when a folder is shared
 * with them. Returns whether a session is about to stop.
 */
export function useLiveNotices(): boolean {
  const { data: me } = useQuery(meQuery);
  const show = useNotify();
  useEffect(() => {
    if (me) {
      openNotices(me.username);
    }
  }, [me]);

  useEffect(
    () =>
      onChange(change => {
        if (!concerns(change, me?.id)) {
          return;
        }
        // Bypass the cache: a short session may have ended since the last request.
        void readSession(change.session_id).then(
          session => {
            const notice = noticeOf(session);
            if (notice) {
              show(notice);
            }
          },
          () => undefined // the lists, which are read at the same time, report the error
        );
      }),
    [me?.id, show]
  );
  useShareNotices(me?.id, show);
  return useStopWarnings(me?.username);
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
          : { description: noticeInfo(notice), actions: <NoticeLink notice={notice} /> })
      });
      showOnDesktop(title, noticeInfo(notice), notice.key);
    },
    [notification, t]
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
