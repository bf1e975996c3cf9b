/** Values of the form of a new model. */
export interface PublishValues {
  project?: string;
  /** Id of an existing folder. */
  existing?: string;
  /** Name of a new folder. */
  folder?: string;
  title?: string;
  version?: string;
  author?: string;
  description?: string;
  task?: string;
  license?: string;
  framework?: string[];
  label?: string[];
  cpu?: string;
  mem?: string;
  command?: string;
  port?: number | null;
  readme?: string;
}

/** A filled-in value as YAML; undefined if it is empty. Every JSON value is a YAML value. */
function yamlOf(value: unknown): string | undefined {
  const plain = typeof value === 'string' ? value.trim() : value;
  const isEmpty =
    plain === undefined || plain === null || plain === '' || (Array.isArray(plain) && !plain[0]);
  return isEmpty ? undefined : JSON.stringify(plain);
}

const linesOf = (values: Record<string, unknown>, indent: string) =>
  Object.entries(values).flatMap(([key, value]) => {
    const text = yamlOf(value);
    return text === undefined ? [] : [`${indent}${key}: ${text}`];
  });

/** The text of a `model-definition.yaml`; `name` identifies the versions of one model. */
export function definitionOf(name: string, values: PublishValues): string {
  const { title, version, author, description, task, license, framework, label } = values;
  const needs = linesOf({ cpu: values.cpu, mem: values.mem }, '      ');
  const service = linesOf({ start_command: values.command, port: values.port }, '    ');
  return [
    'models:',
    `- name: ${JSON.stringify(name)}`,
    '  metadata:',
    ...linesOf({ title, version, author, description, task, license, framework, label }, '    '),
    ...(needs.length > 0 ? ['    min_resource:', ...needs] : []),
    ...(values.command?.trim() ? ['  service:', ...service] : []),
    ''
  ].join('\n');
}

const FIELDS: readonly string[] = [
  'title',
  'version',
  'author',
  'description',
  'task',
  'license',
  'framework',
  'label'
];

/** The form field of a problem in the definition; undefined if it is unknown. */
export function fieldOfProblem(problem: string): keyof PublishValues | undefined {
  const field = /^model-definition\.yaml(?:, line \d+)?: (\w+)/.exec(problem)?.[1] ?? '';
  const other = { min_resource: 'cpu', start_command: 'command', port: 'port', the: 'port' }[field];
  return (other ?? FIELDS.find(known => known === field)) as keyof PublishValues | undefined;
}
