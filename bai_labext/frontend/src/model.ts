import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Api, ApiError, Trouble } from './api';
import { Series } from './samples';
import type { App, Folder, Look, Marks, OtherSession, Parts, Quota, Session, Usage } from './types';

/** While an app starts its state is asked for this often. */
const STARTING_SECONDS = 1;
/** What changes seldom is asked for once in so many samples. */
const SELDOM = 6;

/** What is known of the session; asks again and again while somebody can see it. */
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
      // Nothing is asked while the browser's tab is hidden.
      standby: 'when-hidden',
      linger: 0,
      name: 'bai-labext:look'
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** How the session is reached by ssh; empty where it does not offer that. */
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

  /** With the panel hidden only what the status bar shows is asked for. */
  setPanelShown(isShown: boolean): void {
    this.isPanelShown = isShown;
    if (isShown) {
      this.refresh();
    }
  }

  /** Ask for everything now: something was changed. */
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
      // The session's own server knows its apps; whoever asks for all waits for the manager.
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
      // Once it is back everything is asked for again.
      this.rounds = 0;
      this._changed.emit();
      throw error;
    }
    this._changed.emit();
  }

  /** Ask for some parts, all at once: each request carries two kilobytes of headers. */
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
