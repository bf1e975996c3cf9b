import * as React from 'react';

import type { Actions } from './actions';
import { Button } from './button';
import { duration, reasonText } from './format';
import type { Model } from './model';
import type { Translate } from './i18n';
import type { OtherSession } from './types';

interface Props {
  model: Model;
  actions: Actions;
  t: Translate;
}

/**
 * List of the user's other sessions. For a pending session, it shows the queue position and why the
 * session is pending.
 */
export function Sessions({ model, actions, t }: Props): React.ReactElement {
  if (!model.sessions) {
    return <p className="bai-Hint">{t('loading')}</p>;
  }
  return (
    <>
      {model.sessions.length === 0 && <p className="bai-Hint">{t('no-sessions')}</p>}
      <ul className="bai-List">
        {model.sessions.map(session => (
          <li key={session.id}>
            <div className="bai-List-main">
              <span className="bai-List-title">{session.name}</span>
              <span className={`bai-State bai-mod-${session.status}`}>{t(session.status)}</span>
              <span className="bai-Hint">{sessionSummary(session, t)}</span>
              {session.status === 'PENDING' && pendingReason(session, t) && (
                <span className="bai-Hint">{pendingReason(session, t)}</span>
              )}
            </div>
            <span className="bai-Buttons">
              <Button
                label={t('open')}
                target={session.name}
                onClick={() => actions.openSession(session)}
              />
              <Button
                label={t('stop')}
                target={session.name}
                onClick={() => actions.stopOther(session)}
              />
            </span>
          </li>
        ))}
      </ul>
      <div className="bai-Buttons">
        <Button label={t('new-session')} onClick={() => actions.startSession()} />
      </div>
    </>
  );
}

function pendingReason(session: OtherSession, t: Translate): string {
  return reasonText(t, session.reason || session.status_info, session.reason_coded);
}

function sessionSummary(session: OtherSession, t: Translate): string {
  const startsAt = session.estimated_start?.starts_at;
  const left = startsAt ? (Date.parse(startsAt) - Date.now()) / 1000 : NaN;
  const running = session.started_at ? (Date.now() - Date.parse(session.started_at)) / 1000 : NaN;
  return [
    session.queue_position === null
      ? ''
      : t('queue-position', { position: session.queue_position }),
    left > 0 ? t('starts-in', { time: duration(left) }) : '',
    session.status === 'RUNNING' && running >= 0 ? duration(running) : ''
  ]
    .filter(text => text !== '')
    .join(' · ');
}
