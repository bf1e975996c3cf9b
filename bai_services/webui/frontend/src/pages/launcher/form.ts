import type { SessionOptions, SessionRequest } from '../../data/sessions/launch';
import type { Session } from '../../data/sessions/sessions';

export interface MountRow {
  vfolder: string;
  subpath: string;
  path: string;
  permission: 'ro' | 'rw' | '';
}

export interface VariableRow {
  name: string;
  value: string;
  isSecret: boolean;
}

/** The state of the launcher's form. An empty text stands for the default of the API. */
export interface LaunchForm {
  type: 'interactive' | 'batch';
  /** User name of the owner; empty: the user. */
  owner: string;
  name: string;
  project: string;
  resource_group: string;
  image: string;
  preset: string;
  resources: Record<string, string>;
  minimum_resources: Record<string, string>;
  shared_memory: string;
  cluster_size: number;
  cluster_mode: 'single-node' | 'multi-node';
  startup_command: string;
  starts_at: string;
  batch_timeout: string;
  mounts: MountRow[];
  environ: VariableRow[];
  preopen_ports: number[];
  dependencies: string[];
  agent_list: string[];
  priority: number | null;
  job_priority: number | null;
  is_preemptible: boolean;
  callback_url: string;
}

/** Environment variables that set the number of threads of numerical libraries. */
export const THREAD_VARIABLES: readonly string[] = ['OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'];

export const isThreadVariable = ({ name }: VariableRow) => THREAD_VARIABLES.includes(name);

/** Names of variables that are given more than once; only the last value would count. */
export function repeatedNames(environ: VariableRow[]): string[] {
  const names = environ.map(({ name }) => name).filter(Boolean);
  return [...new Set(names.filter((name, index) => names.indexOf(name) !== index))];
}

export const EMPTY: LaunchForm = {
  type: 'interactive',
  owner: '',
  name: '',
  project: '',
  resource_group: '',
  image: '',
  preset: '',
  resources: {},
  minimum_resources: {},
  shared_memory: '',
  cluster_size: 1,
  cluster_mode: 'single-node',
  startup_command: '',
  starts_at: '',
  batch_timeout: '',
  mounts: [],
  environ: [],
  preopen_ports: [],
  dependencies: [],
  agent_list: [],
  priority: null,
  job_priority: null,
  is_preemptible: true,
  callback_url: ''
};

const TEXTS = [
  'owner',
  'name',
  'project',
  'resource_group',
  'image',
  'preset',
  'shared_memory',
  'startup_command',
  'starts_at',
  'batch_timeout',
  'callback_url'
] as const;

const recordOf = (value: unknown): Record<string, unknown> =>
  value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : {};

const textOf = (value: unknown) =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : '';

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/**
 * Convert a request of the API, for example from a template or a URL, to the form; ignore unknown
 * fields and invalid values.
 */
export function formOf(request: unknown): LaunchForm {
  const given = recordOf(request);
  const texts = Object.fromEntries(TEXTS.map(key => [key, textOf(given[key])]));
  const secrets = listOf(given['secret_environ']).map(textOf);
  const size = Number(given['cluster_size']);
  const { priority, job_priority: jobPriority } = given;
  return {
    ...EMPTY,
    ...texts,
    type: given['type'] === 'batch' ? 'batch' : 'interactive',
    resources: amountsOf(given['resources']),
    minimum_resources: amountsOf(given['minimum_resources']),
    cluster_size: Number.isInteger(size) && size > 1 ? size : 1,
    cluster_mode: given['cluster_mode'] === 'multi-node' ? 'multi-node' : 'single-node',
    mounts: listOf(given['mounts']).map(recordOf).map(mountOf),
    environ: Object.entries(recordOf(given['environ'])).map(([name, value]) => ({
      name,
      value: secrets.includes(name) ? '' : textOf(value),
      isSecret: secrets.includes(name)
    })),
    preopen_ports: listOf(given['preopen_ports']).map(Number).filter(Number.isInteger),
    dependencies: listOf(given['dependencies']).map(textOf),
    agent_list: listOf(given['agent_list']).map(textOf),
    priority: typeof priority === 'number' ? priority : null,
    job_priority: typeof jobPriority === 'number' ? jobPriority : null,
    is_preemptible: given['is_preemptible'] !== false
  };
}

const amountsOf = (amounts: unknown) =>
  Object.fromEntries(
    Object.entries(recordOf(amounts)).map(([slot, amount]) => [slot, textOf(amount)])
  );

const mountOf = (mount: Record<string, unknown>): MountRow => ({
  vfolder: textOf(mount['vfolder']),
  subpath: textOf(mount['subpath']),
  path: textOf(mount['path']),
  permission:
    mount['permission'] === 'ro' || mount['permission'] === 'rw' ? mount['permission'] : ''
});

/**
 * Convert the form to a request of the API: the type, and the fields that differ from the defaults.
 */
export function requestOf(form: LaunchForm): SessionRequest {
  const texts = TEXTS.filter(key => key !== 'batch_timeout' && form[key] !== '');
  const variables = form.environ.filter(({ name }) => name !== '');
  const secrets = variables.filter(({ isSecret }) => isSecret).map(({ name }) => name);
  const resources = Object.entries(form.resources).filter(([, amount]) => amount !== '');
  const minimum = Object.entries(form.minimum_resources).filter(([, amount]) => amount !== '');
  return {
    type: form.type,
    ...Object.fromEntries(texts.map(key => [key, form[key]])),
    ...(resources.length > 0 ? { resources: Object.fromEntries(resources) } : {}),
    ...(minimum.length > 0 && form.cluster_size === 1
      ? { minimum_resources: Object.fromEntries(minimum) }
      : {}),
    ...(form.batch_timeout ? { batch_timeout: form.batch_timeout } : {}),
    ...(form.cluster_size > 1
      ? { cluster_size: form.cluster_size, cluster_mode: form.cluster_mode }
      : {}),
    ...(form.mounts.length > 0 ? { mounts: form.mounts.map(mountRequestOf) } : {}),
    ...(variables.length > 0
      ? { environ: Object.fromEntries(variables.map(({ name, value }) => [name, value])) }
      : {}),
    ...(secrets.length > 0 ? { secret_environ: secrets } : {}),
    ...(form.preopen_ports.length > 0 ? { preopen_ports: form.preopen_ports } : {}),
    ...(form.dependencies.length > 0 ? { dependencies: form.dependencies } : {}),
    ...(form.agent_list.length > 0 && form.cluster_size === 1
      ? { agent_list: form.agent_list }
      : {}),
    ...(form.priority === null ? {} : { priority: form.priority }),
    ...(form.job_priority ? { job_priority: form.job_priority } : {}),
    ...(form.is_preemptible ? {} : { is_preemptible: false })
  };
}

const mountRequestOf = ({ permission, ...mount }: MountRow) => ({
  ...mount,
  permission: permission || null
});

/** The same request without the values of secret variables, for URLs and templates. */
export function withoutSecrets(request: SessionRequest): SessionRequest {
  const secrets = request.secret_environ ?? [];
  const shown = Object.entries(request.environ ?? {}).map(([name, value]) => [
    name,
    secrets.includes(name) ? '' : value
  ]);
  const environ = Object.fromEntries(shown) as Record<string, string>;
  return request.environ ? { ...request, environ } : request;
}

/**
 * The request for a session like an existing one, without name, start time and dependencies. It has
 * the ids of the folders, because several folders can have the same name.
 */
export function requestOfSession(session: Session): SessionRequest {
  return requestOf(
    formOf({
      ...session,
      name: '',
      starts_at: '',
      dependencies: [],
      resources: session.elasticity?.preferred ?? session.requested,
      minimum_resources: session.elasticity?.minimum ?? {},
      mounts: session.mounts.map(mount => ({ ...mount, vfolder: mount.vfolder_id })),
      shared_memory: session.shared_memory === '0' ? '' : session.shared_memory
    })
  );
}

/** The image chosen in the form, else the project's default; undefined if it is not listed. */
export function imageOf(form: LaunchForm, options: SessionOptions) {
  const project = options.projects.find(({ id }) => id === options.project);
  const chosen = form.image || (project?.default_image ?? '');
  return options.images.find(({ name, aliases }) => name === chosen || aliases.includes(chosen));
}
