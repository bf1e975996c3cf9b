import type { Item } from '../../data/entities';

/** The permissions on a storage host, in the order of the API. */
export const PERMISSIONS = [
  'create-vfolder',
  'modify-vfolder',
  'delete-vfolder',
  'mount-in-session',
  'upload-file',
  'download-file',
  'invite-others',
  'set-user-specific-permission'
];

type Hosts = Record<string, string[]>;

const hostsOf = (item: Item | undefined) => (item?.['allowed_vfolder_hosts'] ?? {}) as Hosts;

export const grantedOn = (item: Item | undefined, host: string): string[] => {
  const hosts = hostsOf(item);
  // Use only own keys: an object inherits keys such as `constructor`.
  return Object.hasOwn(hosts, host) ? (hosts[host] ?? []) : [];
};

/** The change that grants or revokes one permission and leaves other hosts unchanged. */
export function changedHosts(item: Item, host: string, permission: string, isGranted: boolean) {
  const others = grantedOn(item, host).filter(name => name !== permission);
  const permissions = isGranted ? [...others, permission] : others;
  const rest = Object.entries(hostsOf(item)).filter(([name]) => name !== host);
  return {
    allowed_vfolder_hosts: Object.fromEntries([
      ...rest,
      ...(permissions.length > 0 ? [[host, permissions] as const] : [])
    ])
  };
}
