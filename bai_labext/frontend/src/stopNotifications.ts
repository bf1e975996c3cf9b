import { Notification } from '@jupyterlab/apputils';

import {
  endingCheck,
  idleSecondsLeft,
  idleStepReached,
  isEnded,
  keepAlivesOf,
  secondsLeft,
  stepReached
} from './stopTimes';
import { duration, idleCheckTexts } from './format';
import type { Model } from './model';
import type { Translate } from './i18n';
import type { PlannedStop } from './plannedStop';
import type { Session } from './types';

/** Actions that postpone the stop of the session. */
interface PostponeActions {
  extendSession(): void;
  resetIdleTime(): void;
  keepAlive(): void;
}

/**
 * The end computed by a utilization checker varies slightly with its samples. A smaller change does
 * not restart the warnings.
 */
const END_TOLERANCE_SECONDS = 60;
/** JupyterLab cuts off longer texts of notifications. */
const MAX_NOTIFICATION_CHARACTERS = 140;

/** Notifications of the session: before its stop, when its agent is drained, and after its end. */
export class StopNotifications {
  private readonly endWarning = new StepWarning();
  private readonly idleWarning = new StepWarning();
  private readonly checkWarning = new StepWarning();
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
    if (session && !trouble) {
      this.checkEnd(session);
      this.checkIdleTime(session);
      this.checkIdleCheckers(session);
      this.checkDrain(session);
    }
    const hasEnded = trouble?.kind === 'ended' || (session !== null && isEnded(session));
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
        this.t('stops-in', { time: duration(left ?? 0) }),
        canExtend
          ? [{ label: this.t('keep-alive'), callback: () => this.postpone.extendSession() }]
          : []
      )
    );
  }

  private checkIdleTime(session: Session): void {
    const left = idleSecondsLeft(session);
    this.idleWarning.update(session.idle_ends_at, idleStepReached(session), () =>
      this.warn(this.t('idle-stops-in', { time: duration(left ?? 0) }), [
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
    const left = secondsLeft(check) ?? 0;
    const count = keepAlivesOf(check);
    const keepAlive = {
      label: this.t('keep-alive-left', { count }),
      callback: () => this.postpone.keepAlive()
    };
    this.checkWarning.update(check.ends_at, check.warning_seconds, () => {
      const [end, rule] = idleCheckTexts(this.t, check, left);
      const actions = count > 0 ? [keepAlive] : [];
      const text = `${end} ${rule}`;
      return text.length <= MAX_NOTIFICATION_CHARACTERS
        ? this.warn(text, actions)
        : [...this.warn(end, actions), ...this.warn(rule, [])];
    });
  }

  /** Show a warning; return the ids of its notifications. */
  private warn(text: string, actions: { label: string; callback: () => void }[]): string[] {
    const id = Notification.warning(text, {
      autoClose: false,
      actions: actions.map(action => ({ ...action, displayType: 'accent' }))
    });
    return [id];
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
  private notifications: string[] = [];
  private endsAt: string | null = null;
  private step: number | null = null;

  /** Call `notify` if a new step is reached; `notify` returns the ids of the notifications. */
  update(endsAt: string | null, step: number | null, notify: () => string[]): void {
    if (isOtherEnd(endsAt, this.endsAt)) {
      this.reset();
      this.endsAt = endsAt;
    }
    if (step === null || step === this.step) {
      return;
    }
    this.step = step;
    this.dismiss();
    this.notifications = notify();
  }

  /** Dismiss the notification and restart the steps. */
  reset(): void {
    this.endsAt = null;
    this.step = null;
    this.dismiss();
  }

  private dismiss(): void {
    this.notifications.forEach(id => Notification.dismiss(id));
    this.notifications = [];
  }
}

function isOtherEnd(one: string | null, other: string | null): boolean {
  return one === null || other === null
    ? one !== other
    : Math.abs(Date.parse(one) - Date.parse(other)) > END_TOLERANCE_SECONDS * 1000;
}
