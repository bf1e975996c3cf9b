import {
  ConnectionLost,
  IConnectionLost,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Token } from '@lumino/coreutils';
import { type ISignal, Signal } from '@lumino/signaling';

export interface Stop {
  /** Time of the stop on the clock of this browser, in milliseconds. */
  endsAt: number;
  purpose: string;
  requestedBy: string;
}

/**
 * A planned suspension or preemption of the session: announced, or carried out while the page is
 * open.
 */
export class PlannedStop {
  private announced: Stop | null = null;
  private away = false;
  private returned = false;
  private isDue: () => boolean = () => false;
  private readonly _changed = new Signal<this, void>(this);

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The stop that was announced; null: none. */
  get stop(): Stop | null {
    return this.announced;
  }

  /** Whether the session has been stopped as planned. */
  get isAway(): boolean {
    return this.away;
  }

  /** Whether the session runs again, with a new server that rejects the sign-in of this page. */
  get hasReturned(): boolean {
    return this.returned;
  }

  /** Set the function that returns whether a stop by a time limit or an idle checker is due. */
  setDue(isDue: () => boolean): void {
    this.isDue = isDue;
  }

  /** Whether it is known why the server no longer responds. */
  get isExpected(): boolean {
    return this.announced !== null || this.isDue();
  }

  announce(stop: Stop): void {
    this.announced = stop;
    this.away = this.returned = false;
    this._changed.emit();
  }

  /** Record that the server of the session no longer responds. */
  leave(): void {
    if (this.announced && !this.away) {
      this.away = true;
      this._changed.emit();
    }
  }

  /** Record that the session runs again, even if its stop was not announced to this page. */
  return(): void {
    this.announced = null;
    this.away = false;
    this.returned = true;
    this._changed.emit();
  }

  /** Record that the session runs again, or that its stop was cancelled. */
  clear(): void {
    if (this.announced) {
      this.announced = null;
      this.returned = this.away;
      this.away = false;
      this._changed.emit();
    }
  }
}

export const IPlannedStop = new Token<PlannedStop>('bai-labext:IPlannedStop');

export const plannedStopPlugin: JupyterFrontEndPlugin<PlannedStop> = {
  id: 'bai-labext:planned-stop',
  description: 'The planned stop of the session.',
  autoStart: true,
  provides: IPlannedStop,
  activate: () => new PlannedStop()
};

/**
 * Replaces the dialog of JupyterLab's hub extension, which offers to restart the server. After an
 * announced stop, the panel shows why the server does not respond.
 */
export const connectionLostPlugin: JupyterFrontEndPlugin<IConnectionLost> = {
  id: 'bai-labext:connection-lost',
  description: 'Shows that the connection to the session is lost.',
  autoStart: true,
  requires: [IPlannedStop],
  provides: IConnectionLost,
  activate:
    (_, planned: PlannedStop): IConnectionLost =>
    async (manager, error, translator) => {
      if (!planned.isExpected) {
        await ConnectionLost(manager, error, translator);
      }
    }
};
