import { Notification } from '@jupyterlab/apputils';

import {
  endingCheck,
  endingRule,
  idleStepReached,
  isEnded,
  isStopDue,
  keepAlivesOf,
  ruleStepReached,
  secondsLeft,
  stepReached
} from './stopTimes';
import { clockTime, endRuleNotification, idleCheckNotification } from './format';
import type { Model } from './model';
import type { Translate } from './i18n';
import type { PlannedStop } from './plannedStop';
import type { IdleCheck, Session } from './types';

/** Actions that postpone the stop of the session. */
interface PostponeActions {
  extendSession(): void;
  resetIdleTime(): void;
  keepAlive(): void;
  excludeFromIdleChecks(): void;
}

interface Action {
  label: string;
  callback: () => void;
}

/**
 * The end computed by a utilization checker varies slightly with its samples. A smaller change does
 * not restart the warnings.
 */
const END_TOLERANCE_SECONDS = 60;

/** Notifications of the session: before its stop, when its agent is drained, and after its end. */
export class StopNotifications {
  private readonly endWarning = new StepWarning();
  private readonly idleWarning = new StepWarning();
  private readonly checkWarning = new StepWarning();
  private readonly ruleWarning = new StepWarning();
  private isDraining = false;
  private hasEnded = false;

  constructor(
    private readonly model: Model,
    private readonly t: Translate,
    private readonly postpone: PostponeActions,
    private readonly planned: PlannedStop
  ) {
    model.changed.connect(() => this.check());
  }

  private check(): void {
    const { session, trouble } = this.model;
    const hasEnded = trouble?.kind === 'ended' || (session !== null && isEnded(session));
    if (session && !trouble && session.status === 'RUNNING') {
      this.checkEnd(session);
      this.checkIdleTime(session);
      this.checkIdleCheckers(session);
      this.checkRule(session);
      this.checkDrain(session);
    } else if (hasEnded || !trouble || isStopDue(session)) {
      // Dismiss the warnings of a stop that has happened: their buttons can no longer postpone it.
      this.endWarning.reset();
      this.idleWarning.reset();
      this.checkWarning.reset();
      this.ruleWarning.reset();
    }
    if (hasEnded && !this.hasEnded && !this.planned.isAway) {
      Notification.error(this.t('has-ended'), { autoClose: false });
    }
    this.hasEnded = hasEnded;
  }

  private checkEnd(session: Session): void {
    const left = secondsLeft(session);
    const step = left === null ? null : stepReached(left);
    const canExtend = (session.lifetime?.addable_seconds ?? 0) > 0;
    this.endWarning.update(session.ends_at, step, () =>
      this.warn(
        this.t('stops-at', { time: clockTime(session.ends_at ?? '') }),
        canExtend
          ? [{ label: this.t('keep-alive'), callback: () => this.postpone.extendSession() }]
          : []
      )
    );
  }

  private checkIdleTime(session: Session): void {
    const end = session.idle_ends_at;
    this.idleWarning.update(end, idleStepReached(session), () =>
      this.warn(this.t('idle-stops-at', { time: clockTime(end ?? '') }), [
        { label: this.t('still-here'), callback: () => this.postpone.resetIdleTime() }
      ])
    );
  }

  private checkIdleCheckers(session: Session): void {
    const check = endingCheck(session.idle_checks);
    if (!check) {
      this.checkWarning.reset();
      return;
    }
    this.checkWarning.update(check.ends_at, check.warning_seconds, () =>
      this.warn(idleCheckNotification(this.t, check), this.actionsOf(check))
    );
  }

  private checkRule(session: Session): void {
    const rule = endingRule(session);
    this.ruleWarning.update(rule?.ends_at ?? null, ruleStepReached(session), () =>
      this.warn(rule ? endRuleNotification(this.t, rule) : '', [])
    );
  }

  private actionsOf(check: IdleCheck): Action[] {
    const count = keepAlivesOf(check);
    const actions = [];
    if (count > 0) {
      actions.push({
        label: this.t('keep-alive-left', { count }),
        callback: () => this.postpone.keepAlive()
      });
    }
    if (check.allows_exclusion) {
      actions.push({
        label: this.t('exclude'),
        callback: () => this.postpone.excludeFromIdleChecks()
      });
    }
    return actions;
  }

  /** Show a warning; return the id of its notification. */
  private warn(text: string, actions: Action[]): string {
    return Notification.warning(text, {
      autoClose: false,
      actions: actions.map(action => ({ ...action, displayType: 'accent' }))
    });
  }

  private checkDrain(session: Session): void {
    const isDraining = session.is_draining ?? false;
    if (isDraining && !this.isDraining) {
      Notification.info(this.t('draining'), { autoClose: false });
    }
    this.isDraining = isDraining;
  }
}

/** Warnings before a time limit: one notification per step. A changed limit restarts the steps. */
class StepWarning {
  private notification: string | null = null;
  private endsAt: string | null = null;
  private step: number | null = null;

  /** Call `notify` if a new step is reached; `notify` returns the id of the notification. */
  update(endsAt: string | null, step: number | null, notify: () => string): void {
    if (isOtherEnd(endsAt, this.endsAt)) {
      this.reset();
      this.endsAt = endsAt;
    }
    if (step === null || step === this.step) {
      return;
    }
    this.step = step;
    this.dismiss();
    this.notification = notify();
  }

  /** Dismiss the notification and restart the steps. */
  reset(): void {
    this.endsAt = null;
    this.step = null;
    this.dismiss();
  }

  private dismiss(): void {
    if (this.notification !== null) {
      Notification.dismiss(this.notification);
      this.notification = null;
    }
  }
}

function isOtherEnd(one: string | null, other: string | null): boolean {
  return one === null || other === null
    ? one !== other
    : Math.abs(Date.parse(one) - Date.parse(other)) > END_TOLERANCE_SECONDS * 1000;
}
