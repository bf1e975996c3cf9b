import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Api, ApiError, Trouble } from './api';
import { Series } from './samples';
import type {
  Announcement,
  App,
  Etags,
  Folder,
  OtherSession,
  PollResponse,
  Quota,
  Sections,
  Session,
  Usage
} from './types';

/** Polling interval of an app's state while it starts. */
const STARTING_INTERVAL_SECONDS = 1;
/** Sections that change rarely are queried in every sixth poll. */
const POLLS_PER_RARE_POLL = 6;

/** State of the session, polled while the browser tab is visible. */
export class Model {
  session: Session | null = null;
  usage: Usage | null = null;
  apps: App[] = [];
  announcements: Announcement[] = [];
  folders: Folder[] | null = null;
  quotas: Quota[] = [];
  sessions: OtherSession[] | null = null;
  /** The reason why the data is not current; null if it is current. */
  trouble: { kind: Trouble; message: string } | null = null;
  readonly series = new Series();

  private readonly _changed = new Signal<this, void>(this);
  private readonly poll: Poll;
  private pollCount = 0;
  /**
   * ETags (content hashes) of the sections last received; the server omits a section while its ETag
   * is unchanged.
   */
  private etags: Etags = {};
  private isPanelShown = false;

  constructor(readonly api: Api) {
    this.poll = new Poll({
      auto: false,
      factory: () => this.readSections(),
      frequency: { interval: 5000, backoff: true, max: 60_000 },
      // Do not poll while the browser tab is hidden.
      standby: 'when-hidden',
      linger: 0,
      name: 'bai-labext:poll'
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The ssh command of the session; empty if the session has no SSH server. */
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

  /** Poll at the usual interval although the server does not respond: it is known to return. */
  pollSteadily(): void {
    this.poll.frequency = { ...this.poll.frequency, backoff: false };
  }

  /** Set whether the panel is visible. If it is hidden, most polls query only the usage. */
  setPanelShown(isShown: boolean): void {
    this.isPanelShown = isShown;
    if (isShown) {
      this.refresh();
    }
  }

  /** Query all visible sections now; without ETags, the server omits no section. */
  refresh(): void {
    this.pollCount = 0;
    this.etags = {};
    void this.poll.refresh();
  }

  async startApp(name: string, args: Record<string, string>): Promise<void> {
    await this.api.startApp(name, args);
    await this.readApps();
    while (this.apps.some(app => app.name === name && app.state === 'starting')) {
      await new Promise(resolve => setTimeout(resolve, STARTING_INTERVAL_SECONDS * 1000));
      await this.readApps();
    }
  }

  async stopApp(name: string): Promise<void> {
    await this.api.stopApp(name);
    await this.readApps();
  }

  async readApps(): Promise<void> {
    await this.query(['apps']);
    this._changed.emit();
  }

  private async readSections(): Promise<void> {
    const includesRare = this.pollCount % POLLS_PER_RARE_POLL === 0;
    this.pollCount += 1;
    try {
      // Query the apps separately first: the session's server has them, while the other sections
      // require a response of the manager.
      if (this.trouble || this.apps.length === 0) {
        await this.readApps();
      }
      await this.query([
        'usage',
        ...(includesRare || !this.session ? (['session'] as const) : []),
        ...(this.isPanelShown ? (['apps'] as const) : []),
        ...(this.isPanelShown && includesRare
          ? (['folders', 'sessions', 'announcements'] as const)
          : [])
      ]);
      this.trouble = null;
    } catch (error) {
      this.trouble =
        error instanceof ApiError
          ? { kind: error.trouble, message: error.message }
          : { kind: 'other', message: String(error) };
      // Make the next successful poll query all sections.
      this.pollCount = 0;
      this._changed.emit();
      throw error;
    }
    this._changed.emit();
  }

  /** Query these sections in one request, because the headers of a request take 2 KB. */
  private async query(sections: (keyof Sections)[]): Promise<void> {
    const etags = sections.map(section => [section, this.etags[section] ?? '']);
    const response = await this.api.poll(Object.fromEntries(etags) as Etags);
    this.apply(response);
    if (response.error) {
      throw new ApiError(response.message ?? '', response.error);
    }
  }

  private apply(response: PollResponse): void {
    Object.assign(this.etags, response.etags);
    this.apps = response.apps?.items ?? this.apps;
    this.session = response.session ?? this.session;
    this.folders = response.folders?.items ?? this.folders;
    this.quotas = response.folders?.quotas ?? this.quotas;
    this.sessions = response.sessions?.items ?? this.sessions;
    this.announcements = response.announcements?.items ?? this.announcements;
    if (response.usage) {
      this.usage = response.usage;
      this.series.add(response.usage);
    }
  }
}
