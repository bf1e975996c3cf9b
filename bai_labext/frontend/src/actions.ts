import type { JupyterFrontEnd } from '@jupyterlab/application';
import {
  Clipboard,
  Dialog,
  InputDialog,
  MainAreaWidget,
  Notification,
  showDialog,
  showErrorMessage
} from '@jupyterlab/apputils';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';

import { ApiError } from './api';
import { showAppSharing } from './appSharing';
import { promptForArguments } from './appArguments';
import { duration } from './format';
import { logWidget, sourcesOf } from './log';
import type { Model } from './model';
import { UserClient } from './userClient';
import { showInvitations } from './invitations';
import { showSharing } from './folderSharing';
import { startSession } from './sessionForm';
import type { App, Folder, OtherSession } from './types';
import type { Translate } from './i18n';
import { FileToUpload, Upload, Uploads } from './uploads';

const EXTENSION_SECONDS = 3600;
/**
 * Commands of JupyterLab by the name of the app that they open. A Map, because an app name can come
 * from an image label and could be the name of an inherited object property such as `constructor`.
 */
const JUPYTERLAB_COMMANDS = new Map([
  ['terminal', 'terminal:create-new'],
  ['filebrowser', 'filebrowser:activate']
]);

/** Actions of the panel's buttons and commands; errors are shown in a dialog. */
export class Actions {
  readonly uploads: Uploads;
  private readonly client: UserClient;
  private logs: MainAreaWidget | null = null;

  constructor(
    private readonly model: Model,
    private readonly t: Translate,
    private readonly app: JupyterFrontEnd
  ) {
    // The path of the session's page is the path of the manager followed by `/sessions/ID`.
    this.client = new UserClient(() => (model.session?.page ?? '').replace(/\/sessions\/.*$/, ''));
    this.uploads = new Uploads(this.client);
    this.uploads.finished.connect(() => model.refresh());
  }

  openApp(app: App): void {
    const { baseUrl } = this.model.api;
    const command = JUPYTERLAB_COMMANDS.get(app.name);
    if (command && this.app.commands.hasCommand(command)) {
      void this.showErrors(() => this.app.commands.execute(command));
    } else {
      window.open(URLExt.join(baseUrl, app.path), '_blank', 'noopener');
    }
  }

  startApp(app: App): void {
    void this.showErrors(async () => {
      let problem = '';
      for (;;) {
        const args = app.arguments.length ? await promptForArguments(app, this.t, problem) : {};
        if (!args) {
          return;
        }
        const notice = Notification.emit(`${app.title}: ${this.t('app-starting')}`, 'in-progress', {
          autoClose: false
        });
        try {
          await this.model.startApp(app.name, args);
          this.notifyStarted(app, notice);
          return;
        } catch (error) {
          Notification.dismiss(notice);
          const isInvalid = error instanceof ApiError && error.code === 'invalid-request';
          if (!isInvalid || app.arguments.length === 0) {
            throw error;
          }
          problem = error.message;
        }
      }
    });
  }

  /** Show a button that opens the started app: browsers block a tab that no click opens. */
  private notifyStarted(app: App, notice: string): void {
    const started = this.model.apps.find(other => other.name === app.name);
    if (started?.state !== 'running') {
      // Only dismiss the notice: the panel already shows why the app failed.
      Notification.dismiss(notice);
      return;
    }
    Notification.update({
      id: notice,
      message: `${app.title}: ${this.t('app-running')}`,
      type: 'success',
      autoClose: 15000,
      actions: [{ label: this.t('open'), callback: () => this.openApp(started) }]
    });
  }

  shareApp(app: App): void {
    void this.showErrors(async () => {
      const { session } = this.model;
      if (session && (await this.ensureConsent())) {
        await showAppSharing(app, session, this.client, this.t);
      }
    });
  }

  stopApp(app: App): void {
    void this.showErrors(() => this.model.stopApp(app.name));
  }

  showAppLog(app: App): void {
    this.showLogs(`app:${app.name}`);
  }

  showLog(): void {
    this.showLogs('kernel:');
  }

  rename(): void {
    void this.showErrors(async () => {
      const result = await InputDialog.getText({
        title: this.t('rename-title'),
        text: this.name,
        okLabel: this.t('rename'),
        cancelLabel: this.t('cancel')
      });
      if (result.button.accept && result.value && result.value !== this.name) {
        await this.model.api.rename(result.value);
        this.model.refresh();
      }
    });
  }

  copySsh(): void {
    const command = this.model.sshCommand;
    if (command) {
      Clipboard.copyToSystem(command);
      Notification.success(this.t('copied', { text: command }), { autoClose: 5000 });
    }
  }

  stop(): void {
    void this.showErrors(async () => {
      const paths = this.model.session?.mounts.map(mount => mount.path) ?? [];
      const warning = paths.length
        ? this.t('stop-keeps', { paths: paths.join(', ') })
        : this.t('stop-keeps-nothing');
      if (await this.confirmStop(this.t('stop-question', { name: this.name }), warning)) {
        await this.model.api.stop();
        window.location.assign(this.model.session?.page ?? '/');
      }
    });
  }

  stopOther(session: OtherSession): void {
    void this.showErrors(async () => {
      const title = this.t('stop-question', { name: session.name });
      if (await this.confirmStop(title, this.t('stop-other'))) {
        await this.model.api.stopOther(session.id);
        this.model.refresh();
      }
    });
  }

  openSession(session: OtherSession): void {
    const url = session.status === 'RUNNING' ? session.url : session.page;
    window.open(url, '_blank', 'noopener');
  }

  startSession(): void {
    void this.showErrors(async () => {
      if (!(await this.ensureConsent())) {
        return;
      }
      const form = `${PageConfig.getOption('hubPrefix') || '/hub/'}spawn`;
      const created = await startSession(this.model.session, this.client, form, this.t);
      if (created) {
        Notification.success(this.t('session-created', { name: created.name }), {
          autoClose: 5000
        });
        this.model.refresh();
      }
    });
  }

  extendSession(): void {
    void this.showErrors(async () => {
      const addable = this.model.session?.lifetime?.addable_seconds ?? 0;
      const seconds = Math.min(EXTENSION_SECONDS, addable);
      this.model.session = await this.model.api.extend(seconds);
      Notification.success(this.t('kept-alive', { time: duration(seconds) }), { autoClose: 5000 });
      this.model.refresh();
    });
  }

  /** Reset the idle time by reporting activity. */
  resetIdleTime(): void {
    void this.showErrors(async () => {
      await this.model.api.reportActivity();
      this.model.refresh();
    });
  }

  /** Restart the time windows of the idle checkers; the number of restarts is limited. */
  keepAlive(): void {
    void this.showErrors(async () => {
      this.model.session = await this.model.api.keepAlive();
      this.model.refresh();
    });
  }

  /**
   * Exclude the session from the idle checkers that allow it. The session's own token does not
   * permit this, because code in the session could use it without the user.
   */
  excludeFromIdleChecks(): void {
    void this.showErrors(async () => {
      const { session } = this.model;
      if (session && (await this.ensureConsent())) {
        const path = `/sessions/${session.id}/idle-checks/exclusion`;
        await this.client.put(path, { is_excluded: true });
        Notification.success(this.t('excluded'), { autoClose: 5000 });
        this.model.refresh();
      }
    });
  }

  openPage(): void {
    window.open(this.model.session?.page ?? '/', '_blank', 'noopener');
  }

  /** Open a page of the session's server, which redirects to the Hub's sign-in page and back. */
  signInAgain(): void {
    window.open(URLExt.join(this.model.api.baseUrl, 'lab'), '_blank', 'noopener');
  }

  /** Whether the file browser can open a path: the path must be below the server's root. */
  canBrowse(path: string): boolean {
    return path.startsWith(`${rootPath()}/`);
  }

  browse(folder: Folder): void {
    const relative = (folder.path ?? '').slice(rootPath().length + 1);
    void this.showErrors(() =>
      this.app.commands.execute('filebrowser:open-path', { path: relative })
    );
  }

  showInvitations(): void {
    void this.showErrors(async () => {
      if (await this.ensureConsent()) {
        await showInvitations(this.client, this.t);
        this.model.refresh();
      }
    });
  }

  share(folder: Folder): void {
    void this.showErrors(async () => {
      if (await this.ensureConsent()) {
        await showSharing(folder, this.client, this.t);
      }
    });
  }

  upload(folder: Folder, files: Promise<FileToUpload[]>): void {
    void this.showErrors(async () => {
      const chosen = await files;
      if (chosen.length > 0 && (await this.ensureConsent())) {
        this.uploads.add(folder.id, chosen);
      }
    });
  }

  resumeUpload(upload: Upload): void {
    void this.showErrors(async () => {
      if (await this.ensureConsent()) {
        this.uploads.resume(upload);
      }
    });
  }

  private get name(): string {
    return this.model.session?.name ?? '';
  }

  /** Request the user's consent if the client has no token; return whether it now has a token. */
  private async ensureConsent(): Promise<boolean> {
    if (this.client.hasToken) {
      return true;
    }
    if (!this.client.canRequestConsent) {
      throw new Error(this.t('allow-needs-tls'));
    }
    // Browsers block a window that no click opens; here, the user clicks the dialog's button.
    const result = await showDialog({
      title: this.t('allow-title'),
      body: this.t('allow-why'),
      buttons: [
        Dialog.cancelButton({ label: this.t('cancel') }),
        Dialog.okButton({ label: this.t('open-window') })
      ]
    });
    return result.button.accept && (await this.client.requestConsent());
  }

  private showLogs(key: string): void {
    void this.showErrors(async () => {
      this.logs?.dispose();
      const kernels = this.model.session?.kernels.map(kernel => kernel.hostname) ?? [];
      const apps = this.model.apps.filter(app => app.state !== 'builtin');
      const { api } = this.model;
      this.logs = logWidget(sourcesOf(api, kernels, apps), key, this.t);
      this.app.shell.add(this.logs, 'main');
      this.app.shell.activateById(this.logs.id);
      return Promise.resolve();
    });
  }

  private async confirmStop(title: string, body: string): Promise<boolean> {
    const result = await showDialog({
      title,
      body,
      // Pressing Enter alone must not stop a session.
      defaultButton: 0,
      buttons: [
        Dialog.cancelButton({ label: this.t('cancel') }),
        Dialog.warnButton({ label: this.t('stop') })
      ]
    });
    return result.button.accept;
  }

  private async showErrors(action: () => Promise<unknown>): Promise<void> {
    try {
      await action();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      await showErrorMessage(this.t('failed'), text, [Dialog.okButton({ label: this.t('close') })]);
    }
  }
}

function rootPath(): string {
  return PageConfig.getOption('serverRoot').replace(/^~/, '/home/work').replace(/\/$/, '');
}
