/** Responses of the session's server under `bai/api`, and of the manager. */

export interface Mount {
  vfolder: string;
  vfolder_id: string;
  path: string;
  permission: string;
}

export interface Device {
  id: string;
  family: string;
  model: string;
  share: string;
  /** null if unknown */
  memory_bytes: number | null;
  is_simulated: boolean;
  enforcement?: string;
}

export interface Lifetime {
  seconds: number;
  added_seconds: number;
  addable_seconds: number;
}

export interface Kernel {
  hostname: string;
  role: string;
  agent: string | null;
}

export interface Session {
  id: string;
  name: string;
  type: string;
  status: string;
  status_info: string;
  owner: string;
  project: string;
  domain: string;
  image: string;
  resource_group: string;
  agent: string | null;
  requested: Record<string, string>;
  shared_memory: string;
  mounts: Mount[];
  notices: string[];
  page: string;
  started_at: string | null;
  created_at: string;
  cluster_size: number;
  devices: Device[];
  kernels: Kernel[];
  enforcement: Record<string, string> | null;
  /** When the session reaches its maximum run time; null if it has none. */
  ends_at: string | null;
  lifetime: Lifetime | null;
  idle_since: string | null;
  /** When the session is stopped if it remains idle; null: never. */
  idle_ends_at: string | null;
  is_draining: boolean | null;
  /** The last results of the idle checkers; a manager without idle checkers omits them. */
  idle_checks?: IdleCheck[] | null;
  /** The limit that ends the session first; a manager of an earlier version omits it. */
  end_rule?: EndRule | null;
  /** The announced preemption; `mode` is `reschedule` or `terminate`. */
  preemption?: { mode: string; stops_at: string } | null;
}

/** When a limit ends the session, and the rule in English and as a code with values. */
export interface EndRule {
  ends_at: string;
  reason: string;
  coded: CodedText | null;
}

export interface IdleCheck {
  checker: string;
  type: 'network' | 'session-lifetime' | 'utilization';
  is_dry_run: boolean;
  status: string;
  /** When the checker stops the session if it stays idle; null: the countdown has not begun. */
  ends_at: string | null;
  /**
   * The end and the first warning if the session is not used from now on; null: unknown. A manager
   * of an earlier version omits them.
   */
  earliest_end_at?: string | null;
  earliest_warning_at?: string | null;
  /** The most recent due warning, in seconds before the end; null: no warning is due. */
  warning_seconds: number | null;
  /** The rule with its window and values, in English. */
  reason: string;
  /** The same text as a code with values. */
  coded: CodedText | null;
  keep_alives_left: number;
  allows_exclusion: boolean;
}

export interface DeviceUsage {
  id: string;
  memory_bytes?: number | null;
  limit_bytes?: number | null;
  utilization_percent?: number | null;
}

export interface KernelUsage {
  cpu_cores?: number;
  mem_bytes?: number;
  mem_limit_bytes?: number;
  net_rx_bytes?: number;
  net_tx_bytes?: number;
  io_read_bytes?: number;
  io_write_bytes?: number;
  devices?: DeviceUsage[];
  device_notice?: string;
  disk_notice?: string;
}

export interface Usage {
  kernels: { at: string | null; usage: KernelUsage }[];
}

export type AppState = 'builtin' | 'missing' | 'stopped' | 'starting' | 'running' | 'failed';

/** A start argument of an app. */
export interface Argument {
  name: string;
  title: string;
  value: string;
  is_required: boolean;
  /** Whether the value is a default path that is deleted with the session. */
  is_temporary: boolean;
}

export interface App {
  name: string;
  title: string;
  kind: 'builtin' | 'process' | 'port' | 'tcp';
  path: string;
  state: AppState;
  message: string;
  arguments: Argument[];
}

/** A share of an app of this session. */
export interface AppShare {
  id: string;
  app: string;
  user: string | null;
  project: string | null;
  allowed_addresses: string[] | null;
  expires_at: string;
  url: string;
}

export interface Folder {
  id: string;
  name: string;
  host: string;
  owner: string | null;
  project: string | null;
  permission: string | null;
  is_owner: boolean;
  is_managed: boolean;
  status: string;
  used_bytes: number | null;
  used_files: number | null;
  path: string | null;
}

export interface Quota {
  host: string;
  scope: string;
  kind: string;
  owner: string | null;
  project: string | null;
  /** null if there is no limit */
  limit_bytes: number | null;
  /** null if not measured yet */
  used_bytes: number | null;
}

/** A text of the manager as a code with values, from which the text is built in any language. */
export interface CodedText {
  code: string;
  values: Record<string, string | number>;
  parts: CodedText[];
}

export interface OtherSession {
  id: string;
  name: string;
  type: string;
  status: string;
  status_info: string;
  image: string;
  requested: Record<string, string>;
  queue_position: number | null;
  estimated_start: { starts_at?: string | null; certainty?: string } | null;
  /** The reason why the session is pending, in English. */
  reason: string;
  /** The same text as a code with values, if it has a code. */
  reason_coded: CodedText | null;
  starts_at: string | null;
  started_at: string | null;
  created_at: string;
  url: string;
  page: string;
}

/**
 * Output of a kernel or an app. If `is_more` is true, `log` continues the earlier output; otherwise
 * it replaces that output.
 */
export interface Log {
  log: string;
  cursor?: string;
  is_more?: boolean;
  is_live?: boolean;
}

export interface Items<T> {
  items: T[];
}

/** An announcement of an administrator; its text is in the web UI. */
export interface Announcement {
  id: string;
  title: string;
  level: string;
}

/** The sections of data that the panel polls. */
export interface Sections {
  apps: Items<App>;
  session: Session;
  usage: Usage;
  folders: Items<Folder> & { quotas: Quota[] };
  sessions: Items<OtherSession>;
  announcements: Items<Announcement>;
}

/** ETag (content hash) of each section; the server omits sections whose ETag has not changed. */
export type Etags = Partial<Record<keyof Sections, string>>;

/** The changed sections with their new ETags, and an error if the manager could not be queried. */
export type PollResponse = Partial<Sections> & {
  etags: Etags;
  error?: string;
  message?: string;
};
