import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import { PromiseDelegate } from '@lumino/coreutils';
import * as React from 'react';

import type { Actions } from './actions';
import { Apps } from './apps';
import { Button } from './button';
import { Charts } from './charts';
import {
  afterStop,
  endingCheck,
  endingRule,
  idleSecondsLeft,
  idleStepReached,
  keepAlivesOf,
  lastReason,
  ruleStepReached,
  secondsLeft,
  type AfterStop
} from './stopTimes';
import { Details } from './details';
import { Folders } from './folders';
import { countdownText, endedTexts, endRuleTexts, idleCheckTexts } from './format';
import type { Model } from './model';
import type { PlannedStop } from './plannedStop';
import { deviceNotices } from './samples';
import { Sessions } from './sessions';
import type { Translate } from './i18n';

const STOP_NOTICE_SECONDS = 30 * 60;

interface Props {
  model: Model;
  actions: Actions;
  planned: PlannedStop;
  t: Translate;
}

/** The sidebar with information about this session. */
export class SessionPanel extends ReactWidget {
  private readonly isInPage = new PromiseDelegate<void>();

  constructor(
    private readonly model: Model,
    private readonly actions: Actions,
    private readonly planned: PlannedStop,
    private readonly t: Translate
  ) {
    super();
    this.id = 'bai-session-panel';
    this.addClass('bai-Panel');
    this.title.caption = t('session');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', t('session'));
    // Make the panel focusable, so that it can be scrolled with the keyboard.
    this.node.tabIndex = -1;
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this.model.changed}>
        {() => (
          <UseSignal signal={this.planned.changed}>
            {() => (
              <Content
                model={this.model}
                actions={this.actions}
                planned={this.planned}
                t={this.t}
              />
            )}
          </UseSignal>
        )}
      </UseSignal>
    );
  }

  /** Resolves when the panel is in the page, even if it is closed. */
  get attached(): Promise<void> {
    return this.isInPage.promise;
  }

  protected override onAfterAttach(...args: Parameters<ReactWidget['onAfterAttach']>): void {
    super.onAfterAttach(...args);
    this.isInPage.resolve();
  }

  protected override onActivateRequest(): void {
    this.node.focus();
  }

  protected override onAfterShow(): void {
    this.model.setPanelShown(true);
  }

  protected override onAfterHide(): void {
    this.model.setPanelShown(false);
  }
}

function Content(props: Props): React.ReactElement {
  const { model, actions, planned, t } = props;
  const { session, usage } = model;
  // The data was read before the session ended, so its status is outdated.
  const hasEnded = model.trouble?.kind === 'ended';
  const status = planned.isAway ? awayStatus(props) : hasEnded ? 'TERMINATED' : session?.status;
  return (
    <>
      <header className="bai-Head">
        <h2>{session?.name ?? t('session')}</h2>
        {status && <span className={`bai-State bai-mod-${status}`}>{t(status)}</span>}
      </header>
      {planned.stop ? <PlannedStopNotice {...props} /> : <TroubleNotice {...props} />}
      <Announcements {...props} />
      {!hasEnded && <StopNotice {...props} />}
      {session && !hasEnded && (
        <div className="bai-Buttons bai-mod-wide">
          <Button label={t('log')} onClick={() => actions.showLog()} />
          <Button label={t('rename')} onClick={() => actions.rename()} />
          {model.sshCommand && <Button label={t('copy-ssh')} onClick={() => actions.copySsh()} />}
          <Button label={t('stop')} isDanger onClick={() => actions.stop()} />
        </div>
      )}
      <Section title={t('usage')}>
        <Charts model={model} t={t} />
        {(usage ? deviceNotices(usage) : []).map(notice => (
          <p key={notice} className="bai-Notice">
            {notice}
          </p>
        ))}
      </Section>
      {!hasEnded && (
        <Section title={t('apps')}>
          <Apps {...props} />
        </Section>
      )}
      {session && (
        <Section title={t('details')}>
          <Details session={session} hasEnded={hasEnded} t={t} />
        </Section>
      )}
      <Section title={t('folders')}>
        <Folders {...props} />
      </Section>
      <Section title={t('sessions')}>
        <Sessions {...props} />
      </Section>
    </>
  );
}

const afterPlannedStop = ({ planned, model }: Props): AfterStop =>
  afterStop(planned.stop?.purpose ?? '', model.session);

const awayStatus = (props: Props): string =>
  afterPlannedStop(props) === 'suspend' ? 'SUSPENDED' : 'PENDING';

/** When a suspension or preemption stops the session, what is saved, and what happens next. */
function PlannedStopNotice(props: Props): React.ReactElement {
  const { model, actions, planned, t } = props;
  const after = afterPlannedStop(props);
  // What follows a preemption is known only when the session has been read again.
  const isKnown = after !== 'end' || Boolean(model.session?.preemption);
  return (
    <div className="bai-Notice bai-mod-alarm" role="status">
      {planned.isAway ? (
        <p>{t(`away-${after}`)}</p>
      ) : (
        <>
          <p>
            {t('planned-stop', { time: new Date(planned.stop?.endsAt ?? 0).toLocaleTimeString() })}
          </p>
          {isKnown && <p>{t(`planned-${after}`)}</p>}
        </>
      )}
      <div className="bai-Buttons">
        <Button label={t('session-page')} onClick={() => actions.openPage()} />
        {planned.isAway && <Button label={t('try-now')} onClick={() => model.refresh()} />}
      </div>
    </div>
  );
}

/** Notice of why the panel cannot get current data, with buttons for what the user can do. */
function TroubleNotice({ model, actions, planned, t }: Props): React.ReactElement {
  const { trouble } = model;
  if (!trouble) {
    return <></>;
  }
  const { kind, message } = trouble;
  const isBack = kind === 'signed-out' && planned.hasReturned;
  const texts =
    kind === 'ended'
      ? // Use the last known state: the panel cannot read the session after its end.
        endedTexts(t, lastReason(model.session))
      : [isBack ? t('is-back-unsaved') : t(`problem-${kind}`, { message })];
  return (
    <div className="bai-Notice" role="status">
      {/* The tooltip shows the error message, which can contain details for administrators. */}
      {texts.map(text => (
        <p key={text} title={message}>
          {text}
        </p>
      ))}
      <div className="bai-Buttons">
        {isBack && <Button label={t('reload')} onClick={() => window.location.reload()} />}
        {kind === 'signed-out' && (
          <Button label={t('sign-in-again')} onClick={() => actions.signInAgain()} />
        )}
        {(kind === 'ended' || kind === 'unreachable') && model.session && (
          <Button label={t('session-page')} onClick={() => actions.openPage()} />
        )}
        <Button label={t('try-now')} onClick={() => model.refresh()} />
      </div>
    </div>
  );
}

/** Titles of announcements, with a button to read them in the web UI. */
function Announcements({ model, actions, t }: Props): React.ReactElement {
  return (
    <>
      {model.announcements.map(({ id, title, level }) => (
        <div key={id} className={`bai-Notice ${level === 'info' ? '' : 'bai-mod-alarm'}`}>
          <p>{title}</p>
          <div className="bai-Buttons">
            <Button label={t('read-announcement')} onClick={() => actions.openPage()} />
          </div>
        </div>
      ))}
    </>
  );
}

/** Notices of the time and reason of a stop, with buttons to postpone it. */
function StopNotice({ model, actions, t }: Props): React.ReactElement {
  const { session } = model;
  const left = session ? secondsLeft(session) : null;
  const addable = session?.lifetime?.addable_seconds ?? 0;
  const check = endingCheck(session?.idle_checks);
  const rule = ruleStepReached(session) === null ? null : endingRule(session);
  return (
    <>
      {left !== null && left < STOP_NOTICE_SECONDS && (
        <div className="bai-Notice bai-mod-alarm">
          <p>{countdownText(t, 'stops-in', left)}</p>
          {addable > 0 && (
            <div className="bai-Buttons">
              <Button label={t('keep-alive')} onClick={() => actions.extendSession()} />
            </div>
          )}
        </div>
      )}
      {session && idleStepReached(session) !== null && (
        <div className="bai-Notice bai-mod-alarm">
          <p>{countdownText(t, 'idle-stops-in', idleSecondsLeft(session) ?? 0)}</p>
          <div className="bai-Buttons">
            <Button label={t('still-here')} onClick={() => actions.resetIdleTime()} />
          </div>
        </div>
      )}
      {rule && (
        <div className="bai-Notice bai-mod-alarm">
          {endRuleTexts(t, rule, secondsLeft(rule) ?? 0).map(text => (
            <p key={text}>{text}</p>
          ))}
        </div>
      )}
      {check && (
        <div className="bai-Notice bai-mod-alarm">
          {idleCheckTexts(t, check, secondsLeft(check) ?? 0).map(text => (
            <p key={text}>{text}</p>
          ))}
          <div className="bai-Buttons">
            {keepAlivesOf(check) > 0 && (
              <Button
                label={t('keep-alive-left', { count: keepAlivesOf(check) })}
                onClick={() => actions.keepAlive()}
              />
            )}
            {check.allows_exclusion && (
              <Button label={t('exclude')} onClick={() => actions.excludeFromIdleChecks()} />
            )}
          </div>
        </div>
      )}
      {session?.is_draining && <p className="bai-Notice">{t('draining')}</p>}
    </>
  );
}

function Section(props: { title: string; children: React.ReactNode }): React.ReactElement {
  return (
    <details className="bai-Section" open>
      <summary>{props.title}</summary>
      {props.children}
    </details>
  );
}
