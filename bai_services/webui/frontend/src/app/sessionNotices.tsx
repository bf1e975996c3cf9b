import { useEffect } from 'react';
import { App } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { onChange } from '../data/events';
import { queries } from '../data/queries';
import { sessionQuery } from '../data/sessions';

const NOTIFIED: Record<string, 'success' | 'error'> = { RUNNING: 'success', ERROR: 'error' };

/** Notify users when one of their sessions starts running or fails. */
export function useSessionNotices(): void {
  const { t } = useTranslation();
  const { notification } = App.useApp();
  useEffect(
    () =>
      onChange(change => {
        const type = NOTIFIED[change.status];
        if (change.kind !== 'status' || !type) {
          return;
        }
        void queries.query(sessionQuery(change.session_id)).then(session =>
          notification[type]({
            key: session.id,
            title: t(`notices.${change.status}`, { name: session.name }),
            description: session.status_info,
            actions: (
              <Link to="/sessions" search={{ tab: 'all', session: session.id }}>
                {t('notices.show')}
              </Link>
            )
          })
        );
      }),
    [notification, t]
  );
}
