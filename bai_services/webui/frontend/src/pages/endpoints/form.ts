import type { NewEndpoint, NewRevision, Revision, Variant } from '../../data/serving/endpoints';
import type { NewTrial } from '../../data/serving/trials';

type Value<T> = T | null | undefined;

/** Values of the form; null, undefined and '' mean that the default of the API applies. */
export interface EndpointValues {
  name?: Value<string>;
  project?: Value<string>;
  is_public?: Value<boolean>;
  tags?: Value<string[]>;
  replicas?: Value<number>;
  variant?: Value<string>;
  command?: Value<string>;
  /** Arguments that are appended to the command of the variant, by option. */
  arguments?: Record<string, Value<string | number>>;
  definition?: Value<string>;
  /** Path of the definition in the model folder. */
  definition_file?: Value<string>;
  image?: Value<string>;
  resource_group?: Value<string>;
  preset?: Value<string>;
  resources?: Record<string, Value<string>>;
  cluster_size?: Value<number>;
  cluster_mode?: Value<string>;
  /** Further folders; `path` is kept if the form was opened with one. */
  mounts?: Value<{ vfolder: string; path?: string }[]>;
  /** One `NAME=value` a line. */
  environ?: Value<string>;
  model_folder?: Value<string>;
  model_path?: Value<string>;
  port?: Value<number>;
  protocol?: Value<string>;
  health?: Record<string, Value<string | number>>;
  rollout?: Record<string, Value<string | number | boolean>>;
}

type Settings = Record<string, unknown>;

const isGiven = (value: unknown) => value !== undefined && value !== null && value !== '';

const given = (values: object = {}): Settings =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => isGiven(value)));

/** Parse variables; undefined if a line is not `NAME=value`. */
export function textToVariables(text: string): Record<string, string> | undefined {
  const lines = text.split('\n').filter(line => line.trim() !== '');
  const pairs = lines.map(line => /^\s*([A-Za-z_]\w*)=(.*)$/.exec(line));
  return pairs.includes(null)
    ? undefined
    : Object.fromEntries(pairs.map(pair => [pair?.[1] ?? '', pair?.[2] ?? '']));
}

const variablesToText = (variables: unknown) =>
  Object.entries((variables ?? {}) as Record<string, string>)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n');

/** Quote a word for a shell if it has special characters. */
export const quoted = (word: string) =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;

/** The command of a variant with arguments; undefined if there are no arguments. */
export function commandWith(
  variant: Variant | undefined,
  values: EndpointValues['arguments']
): string | undefined {
  const parts = (variant?.arguments ?? []).flatMap(({ option }) => {
    const value = values?.[option];
    return isGiven(value) ? [option, quoted(String(value))] : [];
  });
  return variant && parts.length > 0 ? [variant.command, ...parts].join(' ') : undefined;
}

/** The settings in the format of the API; empty fields are omitted. */
function settingsOf(values: EndpointValues, variant: Variant | undefined): Settings {
  const request = given({
    image: values.image,
    resource_group: values.resource_group,
    preset: values.preset,
    // A preset has all resources.
    resources: isGiven(values.preset) ? {} : given(values.resources),
    cluster_size: values.cluster_size,
    cluster_mode: values.cluster_mode,
    mounts: values.mounts?.length ? values.mounts : undefined,
    environ: textToVariables(values.environ ?? '')
  });
  const { variant: name, model_folder, model_path, port, protocol } = values;
  const command = isGiven(values.command) ? values.command : commandWith(variant, values.arguments);
  const health = given(values.health);
  const rollout = given(values.rollout);
  return given({
    variant: name,
    command,
    port,
    protocol,
    model_folder,
    model_path,
    request,
    health: Object.keys(health).length > 0 ? health : undefined,
    rollout: Object.keys(rollout).length > 0 ? rollout : undefined
  });
}

function definitionOf(values: EndpointValues, variant: Variant | undefined): Settings {
  const { definition, definition_file: file } = values;
  if (!values.model_folder || !file?.trim()) {
    return variant?.uses_definition && definition?.trim() ? { definition } : {};
  }
  return { definition_file: file };
}

export const newEndpointOf = (values: EndpointValues, variant: Variant | undefined) =>
  ({
    ...given({
      name: values.name,
      project: values.project,
      is_public: values.is_public,
      tags: values.tags,
      replicas: values.replicas
    }),
    ...definitionOf(values, variant),
    settings: settingsOf(values, variant)
  }) as unknown as NewEndpoint;

export const newTrialOf = (values: EndpointValues, variant: Variant | undefined) =>
  ({
    ...given({ project: values.project }),
    ...definitionOf(values, variant),
    settings: settingsOf(values, variant)
  }) as unknown as NewTrial;

/** Limits of a rollout; a limit without a value is not checked. */
const OPTIONAL_LIMITS = ['max_error_percent', 'max_p99_ms'] as const;

/** Settings that a model definition can contain. */
const OF_DEFINITIONS = ['command', 'port', 'protocol', 'health', 'model_path'] as const;

/**
 * A new revision based on `base`. The API keeps omitted settings, so cleared settings are sent as
 * empty. With a definition, unchanged settings that a definition can contain are omitted, because
 * they would override it.
 */
export function newRevisionOf(
  values: EndpointValues,
  variant: Variant | undefined,
  base: EndpointValues
): NewRevision {
  const definition = definitionOf(values, variant);
  const emptied = { command: '', model_folder: '', model_path: '' };
  const unchecked = OPTIONAL_LIMITS.filter(name => !isGiven(values.rollout?.[name]));
  const rollout = {
    ...given(values.rollout),
    ...Object.fromEntries(unchecked.map(name => [name, null]))
  };
  const request = {
    ...Object.fromEntries(
      (['image', 'preset'] as const).filter(name => isGiven(base[name])).map(name => [name, ''])
    ),
    ...(base.mounts?.length ? { mounts: [] } : {}),
    ...(isGiven(base.cluster_size) ? { cluster_size: 1 } : {})
  };
  const made = settingsOf(values, variant);
  const settings = Object.entries({
    ...emptied,
    ...made,
    request: { ...request, ...(made['request'] as object) },
    rollout
  });
  const isKept = (name: string) =>
    Object.keys(definition).length === 0 ||
    !OF_DEFINITIONS.some(
      each => each === name && JSON.stringify(values[each]) === JSON.stringify(base[each])
    );
  const kept = Object.fromEntries(settings.filter(([name]) => isKept(name)));
  return { ...definition, settings: kept } as unknown as NewRevision;
}

/** The values of the form for the settings of a revision. */
export function valuesOf({ settings }: Revision): EndpointValues {
  const request = (settings['request'] ?? {}) as Record<string, unknown>;
  return {
    variant: settings['variant'] as string,
    command: settings['command'] as string,
    port: settings['port'] as number,
    protocol: settings['protocol'] as string | undefined,
    model_folder: settings['model_folder'] as string,
    model_path: settings['model_path'] as string,
    image: request['image'] as string | undefined,
    resource_group: request['resource_group'] as string | undefined,
    preset: request['preset'] as string | undefined,
    resources: (request['resources'] ?? {}) as Record<string, string>,
    cluster_size: request['cluster_size'] as number | undefined,
    cluster_mode: request['cluster_mode'] as string | undefined,
    mounts: (request['mounts'] ?? []) as { vfolder: string; path?: string }[],
    environ: variablesToText(request['environ']),
    health: settings['health'] as Record<string, string | number>,
    rollout: settings['rollout'] as Record<string, string | number | boolean>
  };
}

/** Form fields by the name in messages of the API, where the names differ. */
const OTHER_NAMES: Record<string, string[]> = {
  mounts: ['model_folder'],
  vfolder: ['model_folder'],
  health: ['health', 'path'],
  rollout: ['rollout', 'strategy'],
  strategy: ['rollout', 'strategy'],
  max_surge: ['rollout', 'max_surge'],
  max_unavailable: ['rollout', 'max_unavailable']
};
const NAMES: readonly string[] = [
  'name',
  'project',
  'is_public',
  'replicas',
  'tags',
  'preset',
  'cluster_size',
  'cluster_mode',
  'variant',
  'command',
  'definition',
  'definition_file',
  'image',
  'resource_group',
  'environ',
  'model_folder',
  'model_path',
  'port',
  'protocol'
];
const GROUPS: readonly string[] = ['resources', 'health', 'rollout'];

/** The field of the form for a field in a message of the API; undefined if there is none. */
export function fieldOf(field: string): string[] | undefined {
  const parts = field.split('.').filter(part => part !== 'settings' && part !== 'request');
  const [first = '', second] = parts;
  if (GROUPS.includes(first) && second !== undefined) {
    return [first, parts.slice(1).join('.')];
  }
  if (NAMES.includes(first)) {
    return [first];
  }
  return Object.hasOwn(OTHER_NAMES, first) ? OTHER_NAMES[first] : undefined;
}
