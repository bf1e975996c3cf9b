import * as React from 'react';

import type { Actions } from './actions';
import { needsArguments } from './appArguments';
import { Button } from './button';
import type { Model } from './model';
import type { Translate } from './i18n';
import type { App } from './types';

interface Props {
  model: Model;
  actions: Actions;
  t: Translate;
}

/** List of the apps of the session, with their states and buttons. */
export function Apps({ model, actions, t }: Props): React.ReactElement {
  return (
    <ul className="bai-List">
      {model.apps.map(app => (
        <li key={app.name}>
          <div className="bai-List-main">
            <span className="bai-List-title">{app.title}</span>
            <span className={`bai-State bai-mod-${app.state}`} aria-live="polite">
              {t(`app-${app.state}`)}
            </span>
            {app.message && (
              <span className={app.state === 'failed' ? 'bai-Problem' : 'bai-Hint'}>
                {app.message}
              </span>
            )}
          </div>
          <AppButtons app={app} actions={actions} t={t} />
        </li>
      ))}
    </ul>
  );
}

function AppButtons(props: { app: App; actions: Actions; t: Translate }): React.ReactElement {
  const { app, actions, t } = props;
  const isUp = app.state === 'running' || app.state === 'starting';
  const isProcess = app.kind === 'process';
  // A port app can be opened only while a program listens on its port. Opening a process app
  // starts it.
  const canOpen =
    app.kind === 'tcp' ? false : app.kind === 'port' ? isUp : app.state !== 'starting';
  return (
    <span className="bai-Buttons">
      {canOpen && (isUp || !needsArguments(app)) && (
        <Button label={t('open')} target={app.title} onClick={() => actions.openApp(app)} />
      )}
      {isProcess && !isUp && (
        <Button label={t('start')} target={app.title} onClick={() => actions.startApp(app)} />
      )}
      {isProcess && isUp && (
        <Button label={t('stop')} target={app.title} onClick={() => actions.stopApp(app)} />
      )}
      {(isProcess || app.kind === 'port') && (
        <Button
          label={t('share-button')}
          target={app.title}
          onClick={() => actions.shareApp(app)}
        />
      )}
      {isProcess && (
        <Button label={t('log')} target={app.title} onClick={() => actions.showAppLog(app)} />
      )}
    </span>
  );
}
