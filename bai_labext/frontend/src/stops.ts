import { Notification } from '@jupyterlab/apputils';

import { idleSecondsLeft, idleStepReached, secondsLeft, stepReached } from './ends';
import { duration } from './format';
import type { Model } from './model';
import type { Translate } from './texts';
import type { Session } from './types';

/** What the user can do to postpone the end. */
interface Ways {
  keepAlive(): void;
  stayHere(): void;
}

/**
 * Notifications of a coming stop, of possible maintenance, and of the end
 * itself.
 */
export class Stops {
  private readonly end = new Coming();
  private readonly idleEnd = new Coming();
  private isDraining = false;
  private hasEnded = false;

  constructor(
    private readonly model: Model,
    private readonly t: Translate,
    private readonly ways: Ways
  ) {
    model.changed.connect(() => this.look());
  }

  private look(): void {
    const { session, trouble } = this.model;
    if (session && !trouble) {
      this.lookAtEnd(session);
      this.lookAtIdleness(session);
      this.lookAtDrain(session);
    }
    const isEnding = session !== null && session.status !== 'RUNNING';
    const hasEnded = trouble?.kind === 'ended' || isEnding;
    if (hasEnded && !this.hasEnded) {
      Notification.error(this.t('has-ended'), { autoClose: false });
    }
    this.hasEnded = hasEnded;
  }

  private lookAtEnd(session: Session): void {
    const left = secondsLeft(session);
    const step = left === null ? null : stepReached(left);
    const canKeep = (session.lifetime?.addable_seconds ?? 0) > 0;
    this.end.look(session.ends_at, step, () =>
      this.warn(
        this.t('stops-in', { time: duration(left ?? 0) }),
        canKeep ? [{ label: this.t('keep-alive'), callback: () => this.ways.keepAlive() }] : []
      )
    );
  }

  private lookAtIdleness(session: Session): void {
    const left = idleSecondsLeft(session);
    this.idleEnd.look(session.idle_ends_at, idleStepReached(session), () =>
      this.warn(this.t('idle-stops-in', { time: duration(left ?? 0) }), [
        { label: this.t('still-here'), callback: () => this.ways.stayHere() }
      ])
    );
  }

  private warn(text: string, ways: { label: string; callback: () => void }[]): string {
    return Notification.warning(text, {
      autoClose: false,
      actions: ways.map(way => ({ ...way, displayType: 'accent' }))
    });
  }

  private lookAtDrain(session: Session): void {
    const isDraining = session.is_draining ?? false;
    if (isDraining && !this.isDraining) {
      Notification.info(this.t('draining'), { autoClose: false });
    }
    this.isDraining = isDraining;
  }
}

/**
 * A coming end: one notification per step, and again after it was postponed.
 */
class Coming {
  private told: string | null = null;
  private endsAt: string | null = null;
  private step: number | null = null;

  look(endsAt: string | null, step: number | null, tell: () => string): void {
    if (endsAt !== this.endsAt) {
      // It was postponed, or the limit has changed.
      this.endsAt = endsAt;
      this.step = null;
      this.dismiss();
    }
    if (step === null || step === this.step) {
      return;
    }
    this.step = step;
    this.dismiss();
    this.told = tell();
  }

  private dismiss(): void {
    if (this.told !== null) {
      Notification.dismiss(this.told);
      this.told = null;
    }
  }
}
