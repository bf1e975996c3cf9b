import type { SessionRequest } from '../../data/sessions/launch';

const SAFE = /^[A-Za-z0-9_@%+=:,./-]+$/;

const quoted = (text: string) => (SAFE.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

/** Single-value fields of a request, and the matching options of `bai session create`. */
const OPTIONS = [
  ['owner', '--owner'],
  ['project', '--project'],
  ['image', '--image'],
  ['resource_group', '--resource-group'],
  ['preset', '--preset'],
  ['shared_memory', '--shared-memory'],
  ['startup_command', '--command'],
  ['starts_at', '--starts-at'],
  ['batch_timeout', '--batch-timeout'],
  ['callback_url', '--callback-url'],
  ['priority', '--priority'],
  ['job_priority', '--job-priority']
] as const;

/**
 * The shell command that creates the requested session. It reads secret values from environment
 * variables.
 */
export function commandOf(request: SessionRequest): string {
  const words = ['bai', 'session', 'create', request.name ?? 'my-session'];
  const add = (option: string, value: unknown) => words.push(option, String(value));
  if (request.type === 'batch') {
    add('--type', 'batch');
  }
  for (const [field, option] of OPTIONS) {
    const value = request[field];
    if (value !== undefined && value !== null) {
      add(option, value);
    }
  }
  for (const [slot, amount] of Object.entries(request.resources ?? {})) {
    add('-r', `${slot}=${String(amount)}`);
  }
  for (const [slot, amount] of Object.entries(request.minimum_resources ?? {})) {
    add('--minimum', `${slot}=${String(amount)}`);
  }
  if ((request.cluster_size ?? 1) > 1) {
    add('--cluster-size', request.cluster_size);
    add('--cluster-mode', request.cluster_mode);
  }
  for (const { vfolder, subpath, path, permission } of request.mounts ?? []) {
    const source = subpath ? `${vfolder}/${subpath}` : vfolder;
    add('--mount', [source, path, permission ?? ''].join(':').replace(/:+$/, ''));
  }
  for (const [name, value] of Object.entries(request.environ ?? {})) {
    const isSecret = request.secret_environ?.includes(name) ?? false;
    add(isSecret ? '--secret-env' : '-e', isSecret ? name : `${name}=${value}`);
  }
  for (const port of request.preopen_ports ?? []) {
    add('--preopen', port);
  }
  for (const key of request.dependencies ?? []) {
    add('--depends-on', key);
  }
  if (request.is_preemptible === false) {
    words.push('--not-preemptible');
  }
  for (const agent of request.agent_list ?? []) {
    add('--agent', agent);
  }
  return words.map(quoted).join(' ');
}
