import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import type { IStateDB } from '@jupyterlab/statedb';
import { UUID } from '@lumino/coreutils';
import * as React from 'react';

import type { Api } from './api';
import { hasChanges, saveDocuments } from './documents';
import { countdownText } from './format';
import type { Model } from './model';
import type { Translate } from './i18n';
import type { PlannedStop } from './plannedStop';
import { restoreActions, returnActions, type ReturnAction } from './returnNotice';
import { restoreVariables, type SavedKernel } from './savedVariables';
import { afterStop, countdownKey, isDropped } from './stopTimes';
import type { Session } from './types';

/** JupyterLab truncates longer notifications. */
const MAX_NOTIFICATION_CHARACTERS = 140;
/** In the last seconds before the stop, changed documents are saved again at this interval. */
const FINAL_SECONDS = 10;
const FINAL_SAVE_INTERVAL_SECONDS = 2;
const SHORT_NOTICE_MILLISECONDS = 10_000;
/** Id of the event that the session's server sends when the state has changed. */
const EVENT = 'https://bai-hub.example/events/preparation';

/** The stop for which the session is preparing. */
export interface StopAhead {
  purpose: string;
  requested_by: string;
  deadline: string;
  seconds_left: number;
  is_done: boolean;
}

/** What was saved before the last stop. */
export interface StopReport {
  saved_documents: string[];
  unsaved_documents: string[];
  has_hook: boolean;
  hook_exit_code: number | null;
  hook_message: string;
  kernels: SavedKernel[];
}

export interface PreparationState {
  ahead: StopAhead | null;
  returned: StopReport | null;
}

/** Saves the page before the session stops; shows what was saved when the session is back. */
export class Preparation {
  private readonly page = UUID.uuid4();
  private deadline: string | null = null;
  private countdown: { notification: string; timer: number; silencer?: MutationObserver } | null =
    null;
  private statusInfo = '';
  private wasUnreachable = false;
  private wasAway = false;
  /** When the server of the session started that has delivered this page. */
  private startedAt: string | null = null;
  private isSaving = false;
  private hasShownReturn = false;
  private hasSeenPreemption = false;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly api: Api,
    private readonly model: Model,
    private readonly t: Translate,
    private readonly stateDb: IStateDB | null,
    private readonly planned: PlannedStop,
    private readonly signInAgain: () => void
  ) {
    app.serviceManager.events.stream.connect((_, emission) => {
      if (emission.schema_id === EVENT) {
        void this.check();
      }
    });
    model.changed.connect(() => this.followModel());
    void app.restored.then(() => this.check());
  }

  /** Read the state again when the status text changes, because the event can be lost. */
  private followModel(): void {
    const { session, trouble } = this.model;
    if (trouble) {
      this.wasUnreachable = true;
      // Polls can miss the time without a server, and `wasAway` covers a stop whose announcement was
      // missed because the browser was offline.
      if (trouble.kind === 'signed-out' && (this.planned.stop !== null || this.wasAway)) {
        // The sign-in of the page has ended with the old server. The session has a new server.
        this.offerReload();
      } else if (trouble.kind === 'ended' && this.planned.stop && !this.planned.isAway) {
        this.showAway(this.planned.stop.purpose);
      }
      this.wasAway ||= trouble.kind === 'ended' || trouble.kind === 'unreachable';
      return;
    }
    this.wasAway = false;
    if (this.isOtherServer(session)) {
      this.offerReload();
      return;
    }
    this.followPreemption();
    const hasReturned = this.wasUnreachable && this.planned.stop !== null;
    this.wasUnreachable = false;
    if (session && (session.status_info !== this.statusInfo || hasReturned)) {
      this.statusInfo = session.status_info;
      void this.check();
    }
  }

  /** Whether the session was restarted, so that the kernels of this page no longer exist. */
  private isOtherServer(session: Session | null): boolean {
    if (!session?.started_at) {
      return false;
    }
    const known = this.startedAt;
    this.startedAt = session.started_at;
    return known !== null && known !== session.started_at;
  }

  /** Detect a cancelled preemption, because the session's server is notified of it late. */
  private followPreemption(): void {
    const { session } = this.model;
    const { stop, isAway } = this.planned;
    if (!session || !stop || isAway) {
      return;
    }
    if (isDropped({ endsAt: stop.endsAt, wasSeen: this.hasSeenPreemption }, session)) {
      this.showCancelled();
    }
    this.hasSeenPreemption ||= Boolean(session.preemption);
  }

  private showAway(purpose: string): void {
    this.endCountdown();
    const after = afterStop(purpose, this.model.session);
    if (after === 'end') {
      this.planned.clear();
      return;
    }
    this.planned.leave();
    this.model.pollSteadily();
    this.countdown = { notification: this.info(`${after}-now`), timer: 0 };
  }

  private async check(): Promise<void> {
    let state: PreparationState;
    try {
      state = await this.api.preparation();
    } catch {
      return;
    }
    if (state.ahead && !state.ahead.is_done && state.ahead.deadline !== this.deadline) {
      await this.prepare(state.ahead);
    } else if (!state.ahead && this.planned.stop) {
      if (this.planned.isAway) {
        this.offerReload();
      } else {
        this.showCancelled();
      }
    } else if (state.returned && !this.hasShownReturn) {
      this.hasShownReturn = true;
      this.showReturn(state.returned);
    }
  }

  private async prepare(ahead: StopAhead): Promise<void> {
    this.deadline = ahead.deadline;
    this.hasSeenPreemption = false;
    this.startCountdown(ahead);
    // Read the session again, because it contains what happens after a preemption.
    this.model.refresh();
    await this.api.answerPreparation({ page: this.page, state: 'saving' }).catch(() => undefined);
    await this.save();
  }

  private async save(): Promise<void> {
    this.isSaving = true;
    try {
      const results = await saveDocuments(this.app);
      await this.saveWorkspace().catch(() => results.unsaved.push(this.t('workspace')));
      await this.api.answerPreparation({ page: this.page, state: 'done', ...results });
    } catch {
      // Nobody needs the answer: the session has already stopped.
    } finally {
      this.isSaving = false;
    }
  }

  /** JupyterLab saves the workspace with a delay, which could be too late. */
  private async saveWorkspace(): Promise<void> {
    if (this.stateDb === null) {
      return;
    }
    const id = PageConfig.getOption('workspace') || PageConfig.defaultWorkspace;
    const data = await this.stateDb.toJSON();
    await this.app.serviceManager.workspaces.save(id, { data, metadata: { id } });
  }

  private startCountdown(ahead: StopAhead): void {
    this.endCountdown();
    const endsAt = Date.now() + ahead.seconds_left * 1000;
    const text = (): string =>
      // Whether a preempted session restarts is known as soon as the session has been read.
      countdownText(
        this.t,
        countdownKey(ahead.purpose, this.model.session),
        (endsAt - Date.now()) / 1000,
        { name: ahead.requested_by }
      );
    const notification = Notification.warning(text(), { autoClose: false });
    const silencer = new MutationObserver(() => silence(notification));
    const timer = window.setInterval(() => {
      silence(notification);
      // Silence the new element: an update can replace the element.
      silencer.observe(document.body, { childList: true, subtree: true });
      Notification.update({ id: notification, message: text() });
      this.saveBefore(endsAt);
    }, 1000);
    this.countdown = { notification, timer, silencer };
    this.planned.announce({ endsAt, purpose: ahead.purpose, requestedBy: ahead.requested_by });
  }

  /** Save the changes that the user has made since the first save. */
  private saveBefore(endsAt: number): void {
    const left = Math.floor((endsAt - Date.now()) / 1000);
    const isDue = left >= 0 && left <= FINAL_SECONDS && left % FINAL_SAVE_INTERVAL_SECONDS === 0;
    if (isDue && !this.isSaving && hasChanges(this.app)) {
      void this.save();
    }
  }

  private showCancelled(): void {
    // Close the notice, which is not shown again for this deadline.
    this.endCountdown();
    this.planned.clear();
    Notification.success(this.t('stop-cancelled'), { autoClose: SHORT_NOTICE_MILLISECONDS });
  }

  private endCountdown(): void {
    if (this.countdown) {
      window.clearInterval(this.countdown.timer);
      this.countdown.silencer?.disconnect();
      Notification.dismiss(this.countdown.notification);
      this.countdown = null;
    }
  }

  private info(key: string): string {
    return Notification.info(this.t(key), { autoClose: false });
  }

  /**
   * Reload the page, because the returned session has new kernels. Changes made in the meantime
   * must first be saved, which requires a new sign-in; then the user reloads the page.
   */
  private offerReload(): void {
    this.endCountdown();
    this.deadline = null;
    this.wasAway = false;
    this.planned.return();
    if (!hasChanges(this.app)) {
      window.location.reload();
      return;
    }
    const reload = { label: this.t('reload'), callback: () => window.location.reload() };
    const signIn = { label: this.t('sign-in-again'), callback: this.signInAgain };
    Notification.success(this.t('is-back-unsaved'), {
      autoClose: false,
      actions: [signIn, reload]
    });
  }

  private showReturn(report: StopReport): void {
    const skipped = report.kernels.flatMap(kernel => kernel.skipped);
    const actions = returnActions(this.t, report.kernels, {
      restore: kernel => void this.restore(kernel),
      showDetails: () => void this.showDetails(report),
      dismiss: () => void this.api.dismissPreparation().catch(() => undefined)
    });
    const hasLosses = report.unsaved_documents.length > 0 || skipped.length > 0;
    // JupyterLab truncates longer texts, so everything else is in the details.
    const text = this.t(hasLosses ? 'returned-with-losses' : 'returned');
    Notification.emit(text, hasLosses ? 'warning' : 'info', {
      autoClose: false,
      actions: actions.map(({ label, isAccent, keepsNotice, run }) => ({
        label,
        displayType: isAccent ? 'accent' : 'default',
        callback: event => {
          if (keepsNotice) {
            event.preventDefault();
          }
          run();
        }
      }))
    });
  }

  /** Show what was saved before the stop, and what was not. */
  private async showDetails(report: StopReport): Promise<void> {
    const code = report.hook_exit_code ?? '–';
    const rows: [string, readonly string[]][] = [
      ['returned-saved', report.saved_documents],
      ['returned-unsaved', report.unsaved_documents],
      ['returned-variables', report.kernels.flatMap(kernel => kernel.saved)],
      ['returned-variables-unsaved', report.kernels.flatMap(kernel => kernel.skipped)]
    ];
    const lines = rows
      .filter(([, names]) => names.length)
      .map(([key, names]) => this.t(key, { names: names.join(', ') }));
    if (report.has_hook) {
      lines.push(this.t('returned-hook', { code, message: report.hook_message }));
    }
    const actions = restoreActions(this.t, report.kernels, kernel => void this.restore(kernel));
    await showText(this.t('returned-details'), lines.join('\n') || '–', this.t('close'), actions);
  }

  private async restore(kernel: SavedKernel): Promise<void> {
    try {
      const printed = await restoreVariables(this.app, kernel);
      const text = this.t('variables-restored', { result: printed });
      if (text.length > MAX_NOTIFICATION_CHARACTERS) {
        await showText(this.t('restore-variables'), text, this.t('close'));
      } else {
        Notification.success(text, { autoClose: false });
      }
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      Notification.error(this.t('variables-not-restored', { reason }), { autoClose: false });
    }
  }
}

async function showText(
  title: string,
  text: string,
  close: string,
  actions: readonly ReturnAction[] = []
): Promise<void> {
  const style = { whiteSpace: 'pre-line', overflowWrap: 'anywhere' } as const;
  const { button } = await showDialog({
    title,
    body: React.createElement('div', { style }, text),
    buttons: [
      ...actions.map(({ label }) => Dialog.cancelButton({ label })),
      Dialog.okButton({ label: close })
    ]
  });
  actions.find(({ label }) => label === button.label)?.run();
}

/** Let screen readers announce a notification only once: its element is an alert. */
function silence(notification: string): void {
  document
    .getElementById(notification)
    ?.querySelector('[role=alert]')
    ?.setAttribute('aria-live', 'off');
}
