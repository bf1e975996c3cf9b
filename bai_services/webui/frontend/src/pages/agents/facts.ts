import type { Item } from '../../data/entities';

/** The load of a machine, measured by its agent; unknown values are null. */
export interface Load {
  cpu_percent: number | null;
  cpus_percent: number[];
  memory_used_bytes: number;
  memory_bytes: number;
  disk_used_bytes: number | null;
  disk_bytes: number | null;
  network_received_bytes_per_second: number | null;
  network_sent_bytes_per_second: number | null;
}

interface Usage {
  utilization_percent?: number;
  memory_used_bytes?: number;
  temperature_celsius?: number;
  power_watts?: number;
}

export interface Device {
  id: string;
  family: string;
  model: string;
  index: number;
  memory_bytes: number | null;
  capacity: string;
  used: string;
  is_healthy: boolean;
  is_simulated: boolean;
  facts: { enforcement?: string; shares_withheld?: string; usage?: Usage };
}

interface Facts {
  hostname?: string;
  started_at?: string;
  load?: Load;
  notices?: string[];
}

export const factsOf = (agent: Item) => (agent['facts'] ?? {}) as Facts;
export const devicesOf = (agent: Item) => (agent['devices'] ?? []) as Device[];
export const storageProblemsOf = (agent: Item) =>
  Object.entries((agent['storage_problems'] ?? {}) as Record<string, string>);
export const isConnected = (agent: Item) => agent['status'] === 'ALIVE';

export const percentOf = (used: number, total: number) =>
  total > 0 ? Math.round((100 * used) / total) : 0;

/** The mean utilization of all devices that report it; undefined if none does. */
export function deviceUtilization(devices: readonly Device[]): number | undefined {
  const reported = devices.flatMap(({ facts }) => facts.usage?.utilization_percent ?? []);
  return reported.length === 0
    ? undefined
    : Math.round(reported.reduce((sum, each) => sum + each, 0) / reported.length);
}

/** The used and total memory of all devices that report both; undefined if none does. */
export function deviceMemory(devices: readonly Device[]) {
  const reported = devices.flatMap(({ memory_bytes: total, facts }) => {
    const used = facts.usage?.memory_used_bytes;
    return used === undefined || total === null ? [] : [{ used, total }];
  });
  return reported.length === 0
    ? undefined
    : reported.reduce((sum, { used, total }) => ({
        used: sum.used + used,
        total: sum.total + total
      }));
}
