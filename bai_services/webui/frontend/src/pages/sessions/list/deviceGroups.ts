import type { Session } from '../../../data/sessions/sessions';

type Device = Session['devices'][number];

export interface DeviceGroup {
  /** Unique among the groups of a session. */
  key: string;
  model: string;
  enforcement: Device['enforcement'];
  /** Number of whole devices; for a share, 1. */
  count: number;
  /** The share of one device; null for whole devices. */
  share: string | null;
}

/** Group whole devices by model and enforcement level; each share is a separate group. */
export function deviceGroups(devices: readonly Device[]): DeviceGroup[] {
  const groups = new Map<string, DeviceGroup>();
  for (const { id, kernel, model, enforcement, share } of devices) {
    const isWhole = Number(share) === 1;
    const key = isWhole ? `${model} ${enforcement}` : `${id} ${kernel}`;
    const count = (groups.get(key)?.count ?? 0) + 1;
    groups.set(key, { key, model, enforcement, count, share: isWhole ? null : share });
  }
  return [...groups.values()];
}
