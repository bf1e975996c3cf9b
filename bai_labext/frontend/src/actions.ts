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
import { showAppSharing } from './appshare';
import { askArguments } from './appstart';
import { duration } from './format';
import { logWidget, sourcesOf } from './log';
import type { Model } from './model';
import { Person } from './person';
import { showReceived } from './received';
import { showSharing } from './share';
import { startSession } from './startform';
import type { App, Folder, OtherSession } from './types';
import type { Translate } from './texts';
import { Upload, Uploads, Wanted } from './uploads';

const KEEP_ALIVE_SECONDS = 3600;
/** Commands of JupyterLab itself for some apps. */
const OWN_COMMANDS: Record<string, string> = {
  terminal: 'terminal:create-new',
  filebrowser: 'filebrowser:activate'
};

/**
 * Actions of the panel's buttons and commands; failures are shown in a dialog.
 */
export class Actions {
  readonly uploads: Uploads;
  private readonly person: Person;
  private logs: MainAreaWidget | null = null;

  constructor(
    private readonly model: Model,
    private readonly t: Translate,
    private readonly app: JupyterFrontEnd
  ) {
    // The manager's pages are siblings below one path.
    this.person = new Person(() => (model.session?.page ?? '').replace(/\/sessions\/.*$/, ''));
    this.uploads = new Uploads(this.person);
    this.uploads.landed.connect(() => model.refresh());
  }

  openApp(app: App): void {
    const { baseUrl } = this.model.api;
    const own = OWN_COMMANDS[app.name];
    if (own && this.app.commands.hasCommand(own)) {
      void this.said(() => this.app.commands.execute(own));
    } else {
      window.open(URLExt.join(baseUrl, app.path), '_blank', 'noopener');
    }
  }

  startApp(app: App): void {
    void this.said(async () => {
      let problem = '';
      for (;;) {
        const args = app.arguments.length ? await askArguments(app, this.t, problem) : {};
        if (!args) {
          return;
        }
        try {
          await this.model.startApp(app.name, args);
          return;
        } catch (error) {
          const isForm = error instanceof ApiError && error.code === 'invalid-request';
          if (!isForm || app.arguments.length === 0) {
            throw error;
          }
          problem = error.message;
        }
      }
    });
  }

  shareApp(app: App): void {
    void this.said(async () => {
      const { session } = this.model;
      if (session && (await this.isAllowed())) {
        await showAppSharing(app, session, this.person, this.t);
      }
    });
  }

  stopApp(app: App): void {
    void this.said(() => this.model.stopApp(app.name));
  }

  showAppLog(app: App): void {
    this.showLogs(`app:${app.name}`);
  }

  showLog(): void {
    this.showLogs('kernel:');
  }

  rename(): void {
    void this.said(async () => {
      const answer = await InputDialog.getText({
        title: this.t('rename-title'),
        text: this.name,
        okLabel: this.t('rename'),
        cancelLabel: this.t('cancel')
      });
      if (answer.button.accept && answer.value && answer.value !== this.name) {
        await this.model.api.rename(answer.value);
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
    void this.said(async () => {
      const kept = this.model.session?.mounts.map(mount => mount.path) ?? [];
      const lost = kept.length
        ? this.t('stop-keeps', { paths: kept.join(', ') })
        : this.t('stop-keeps-nothing');
      if (await this.isSure(this.t('stop-question', { name: this.name }), lost)) {
        await this.model.api.stop();
        window.location.assign(this.model.session?.page ?? '/');
      }
    });
  }

  stopOther(session: OtherSession): void {
    void this.said(async () => {
      const title = this.t('stop-question', { name: session.name });
      if (await this.isSure(title, this.t('stop-other'))) {
        await this.model.api.stopOther(session.id);
        this.model.refresh();
      }
    });
  }

  openSession(session: OtherSession): void {
    const place = session.status === 'RUNNING' ? session.url : session.page;
    window.open(place, '_blank', 'noopener');
  }

  startSession(): void {
    void this.said(async () => {
      if (!(await this.isAllowed())) {
        return;
      }
      const form = `${PageConfig.getOption('hubPrefix') || '/hub/'}spawn`;
      const filed = await startSession(this.model.session, this.person, form, this.t);
      if (filed) {
        Notification.success(this.t('filed', { name: filed.name }), { autoClose: 5000 });
        this.model.refresh();
      }
    });
  }

  keepAlive(): void {
    void this.said(async () => {
      const most = this.model.session?.lifetime?.addable_seconds ?? 0;
      const seconds = Math.min(KEEP_ALIVE_SECONDS, most);
      this.model.session = await this.model.api.extend(seconds);
      Notification.success(this.t('kept-alive', { time: duration(seconds) }), { autoClose: 5000 });
      this.model.refresh();
    });
  }

  /** Count as use: the idle time begins again. */
  stayHere(): void {
    void this.said(async () => {
      await this.model.api.atWork();
      this.model.refresh();
    });
  }

  openPage(): void {
    window.open(this.model.session?.page ?? '/', '_blank', 'noopener');
  }

  /** A page of the session's server redirects to the Hub's sign-in and back. */
  signInAgain(): void {
    window.open(URLExt.join(this.model.api.baseUrl, 'lab'), '_blank', 'noopener');
  }

  /** The file browser only knows paths below the server's root. */
  canBrowse(path: string): boolean {
    return path.startsWith(`${rootPath()}/`);
  }

  browse(folder: Folder): void {
    const relative = (folder.path ?? '').slice(rootPath().length + 1);
    void this.said(() => this.app.commands.execute('filebrowser:open-path', { path: relative }));
  }

  showReceived(): void {
    void this.said(async () => {
      if (await this.isAllowed()) {
        await showReceived(this.person, this.t);
        this.model.refresh();
      }
    });
  }

  share(folder: Folder): void {
    void this.said(async () => {
      if (await this.isAllowed()) {
        await showSharing(folder, this.person, this.t);
      }
    });
  }

  upload(folder: Folder, files: Promise<Wanted[]>): void {
    void this.said(async () => {
      const wanted = await files;
      if (wanted.length > 0 && (await this.isAllowed())) {
        this.uploads.add(folder.id, wanted);
      }
    });
  }

  uploadAgain(upload: Upload): void {
    void this.said(async () => {
      if (await this.isAllowed()) {
        this.uploads.again(upload);
      }
    });
  }

  private get name(): string {
    return this.model.session?.name ?? '';
  }

  /** Whether the panel may act as the user; asks once. */
  private async isAllowed(): Promise<boolean> {
    if (this.person.isAllowed) {
      return true;
    }
    if (!this.person.canAsk) {
      throw new Error(this.t('allow-needs-tls'));
    }
    // Browsers only open a window in response to a click, here on the dialog's
    // button.
    const answer = await showDialog({
      title: this.t('allow-title'),
      body: this.t('allow-why'),
      buttons: [
        Dialog.cancelButton({ label: this.t('cancel') }),
        Dialog.okButton({ label: this.t('allow-go-on') })
      ]
    });
    return answer.button.accept && (await this.person.allow());
  }

  private showLogs(key: string): void {
    void this.said(async () => {
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

  private async isSure(title: string, body: string): Promise<boolean> {
    const answer = await showDialog({
      title,
      body,
      // Pressing Enter alone must not end a session.
      defaultButton: 0,
      buttons: [
        Dialog.cancelButton({ label: this.t('cancel') }),
        Dialog.warnButton({ label: this.t('stop') })
      ]
    });
    return answer.button.accept;
  }

  private async said(action: () => Promise<unknown>): Promise<void> {
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
