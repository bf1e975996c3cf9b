import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Api, ApiError, Trouble } from './api';
import { Series } from './samples';
import type { App, Folder, Look, Marks, OtherSession, Parts, Quota, Session, Usage } from './types';

/** Polling interval of an app's state while it starts. */
const STARTING_SECONDS = 1;
/** Parts that change rarely are queried once in this many samples. */
const SELDOM = 6;

/** State of the session, polled while the panel or status bar is visible. */
export class Model {
  session: Session | null = null;
  usage: Usage | null = null;
  apps: App[] = [];
  folders: Folder[] | null = null;
  quotas: Quota[] = [];
  sessions: OtherSession[] | null = null;
  /** Why nothing is known now; null while it is. */
  trouble: { kind: Trouble; message: string } | null = null;
  readonly series = new Series();

  private readonly _changed = new Signal<this, void>(this);
  private readonly poll: Poll;
  private rounds = 0;
  private marks: Marks = {};
  private isPanelShown = false;

  constructor(readonly api: Api) {
    this.poll = new Poll({
      auto: false,
      factory: () => this.look(),
      frequency: { interval: 5000, backoff: true, max: 60_000 },
      // No polling while the browser's tab is hidden.
      standby: 'when-hidden',
      linger: 0,
      name: 'bai-labext:look'
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The ssh command of the session; empty if it has no ssh. */
  get sshCommand(): string {
    const isOffered = this.apps.some(app => app.name === 'ssh' && app.state === 'builtin');
    return isOffered && this.session ? `bai ssh ${this.session.name}` : '';
  }

  start(seconds: number): void {
    this.setInterval(seconds);
    void this.poll.start();
  }

  setInterval(seconds: number): void {
    this.poll.frequency = { ...this.poll.frequency, interval: seconds * 1000 };
  }

  /** While the panel is hidden, only what the status bar shows is queried. */
  setPanelShown(isShown: boolean): void {
    this.isPanelShown = isShown;
    if (isShown) {
      this.refresh();
    }
  }

  /** Query everything now, because something was changed. */
  refresh(): void {
    this.rounds = 0;
    this.marks = {};
    void this.poll.refresh();
  }

  async startApp(name: string, args: Record<string, string>): Promise<void> {
    await this.api.startApp(name, args);
    await this.lookAtApps();
    while (this.apps.some(app => app.name === name && app.state === 'starting')) {
      await new Promise(resolve => setTimeout(resolve, STARTING_SECONDS * 1000));
      await this.lookAtApps();
    }
  }

  async stopApp(name: string): Promise<void> {
    await this.api.stopApp(name);
    await this.lookAtApps();
  }

  async lookAtApps(): Promise<void> {
    await this.ask(['apps']);
    this._changed.emit();
  }

  private async look(): Promise<void> {
    const isSeldom = this.rounds % SELDOM === 0;
    this.rounds += 1;
    try {
      // Apps are known to the session's own server; a query of everything waits
      // for the manager.
      if (this.trouble || this.apps.length === 0) {
        await this.lookAtApps();
      }
      await this.ask([
        'usage',
        ...(isSeldom || !this.session ? (['session'] as const) : []),
        ...(this.isPanelShown ? (['apps'] as const) : []),
        ...(this.isPanelShown && isSeldom ? (['folders', 'sessions'] as const) : [])
      ]);
      this.trouble = null;
    } catch (error) {
      this.trouble =
        error instanceof ApiError
          ? { kind: error.trouble, message: error.message }
          : { kind: 'other', message: String(error) };
      // When it is back, everything is queried again.
      this.rounds = 0;
      this._changed.emit();
      throw error;
    }
    this._changed.emit();
  }

  /** Query parts in one request: each request carries 2 KB of headers. */
  private async ask(parts: (keyof Parts)[]): Promise<void> {
    const known = parts.map(part => [part, this.marks[part] ?? '']);
    const found = await this.api.look(Object.fromEntries(known) as Marks);
    this.take(found);
    if (found.error) {
      throw new ApiError(found.message ?? '', found.error);
    }
  }

  private take(found: Look): void {
    Object.assign(this.marks, found.marks);
    this.apps = found.apps?.items ?? this.apps;
    this.session = found.session ?? this.session;
    this.folders = found.folders?.items ?? this.folders;
    this.quotas = found.folders?.quotas ?? this.quotas;
    this.sessions = found.sessions?.items ?? this.sessions;
    if (found.usage) {
      this.usage = found.usage;
      this.series.add(found.usage);
    }
  }
}
