import { slotsText } from '../../components/SlotTags';

type Request = Readonly<Record<string, unknown>>;

interface Mount {
  vfolder: string;
  path?: string | null;
  permission?: string | null;
}

/** Keys of the labels that are not `sessions.FIELD`. */
const LABELS: Readonly<Record<string, string>> = {
  mounts: 'launcher.section-folders',
  environ: 'launcher.section-environment',
  secret_environ: 'launcher.section-environment',
  cluster_size: 'launcher.cluster-size'
};

/** The key of the label of a field of a session; the field itself if there is no such text. */
export const labelOf = (field: string) => LABELS[field] ?? `sessions.${field.replaceAll('_', '-')}`;

/**
 * The fields of a requested session with their values as texts. Values of environment variables are
 * omitted. `projects`: the names of projects by their ids.
 */
export const requestFacts = (request: Request, projects: ReadonlyMap<string, string>) =>
  Object.entries(request)
    .map(([field, value]) => [field, valueText(field, value, projects)] as const)
    .filter(([, text]) => text !== '');

function valueText(field: string, value: unknown, projects: ReadonlyMap<string, string>): string {
  if (value === null || value === undefined) {
    return '';
  }
  if (field === 'project') {
    return projects.get(plainText(value)) ?? plainText(value);
  }
  if (field === 'mounts') {
    return (value as Mount[]).map(mountText).join(', ');
  }
  if (field === 'environ' || field === 'secret_environ') {
    return Object.keys(value).join(', ');
  }
  if (Array.isArray(value)) {
    return value.map(plainText).join(', ');
  }
  return typeof value === 'object' ? slotsText(value as Record<string, string>) : plainText(value);
}

const mountText = ({ vfolder, path, permission }: Mount) =>
  [vfolder, path && `→ ${path}`, permission && `(${permission})`].filter(Boolean).join(' ');

const plainText = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
