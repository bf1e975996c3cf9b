/** Conversion of usage reports into the time series of the charts. */

import type { DeviceUsage, Usage } from './types';

/**
 * Usage of one device: bytes of memory and percent of utilization. An unknown value is null, but an
 * unknown `limit` is 0.
 */
export interface DeviceSample {
  memory: number | null;
  limit: number;
  utilization: number | null;
}

/**
 * Total usage of all kernels at one time. `at` is in seconds, `cpu` in cores and memory in bytes.
 * `received`, `sent`, `read` and `written` are in bytes per second; null if unknown.
 */
export interface Sample {
  at: number;
  cpu: number;
  memory: number;
  received: number | null;
  sent: number | null;
  read: number | null;
  written: number | null;
  deviceMemory: number | null;
  deviceLimit: number;
  devices: Record<string, DeviceSample>;
}

interface Totals {
  at: number;
  counters: Record<Counter, number | null>;
}

type Counter = 'net_rx_bytes' | 'net_tx_bytes' | 'io_read_bytes' | 'io_write_bytes';
const COUNTERS: Counter[] = ['net_rx_bytes', 'net_tx_bytes', 'io_read_bytes', 'io_write_bytes'];

export const RETENTION_SECONDS = 300;

/** The samples of the last `RETENTION_SECONDS`, with counters converted into rates. */
export class Series {
  private previous: Totals | null = null;
  samples: Sample[] = [];

  /** Add a report. Ignore it and return false if it has no time or is not newer than the last. */
  add(usage: Usage): boolean {
    const uses = usage.kernels.map(kernel => kernel.usage);
    const times = usage.kernels.map(kernel => Date.parse(kernel.at ?? '')).filter(isNumber);
    if (times.length === 0) {
      return false;
    }
    const at = Math.max(...times) / 1000;
    if (this.previous && at <= this.previous.at) {
      return false;
    }
    const counters = Object.fromEntries(
      COUNTERS.map(name => [name, sumOrNull(uses.map(use => use[name]))])
    ) as Record<Counter, number | null>;
    const rate = (name: Counter): number | null => this.rate(name, counters[name], at);
    const devices = byDevice(uses.flatMap(use => use.devices ?? []));
    const deviceValues = Object.values(devices);
    const sample: Sample = {
      at,
      cpu: sum(uses.map(use => use.cpu_cores)),
      memory: sum(uses.map(use => use.mem_bytes)),
      received: rate('net_rx_bytes'),
      sent: rate('net_tx_bytes'),
      read: rate('io_read_bytes'),
      written: rate('io_write_bytes'),
      deviceMemory: sumOrNull(deviceValues.map(device => device.memory)),
      deviceLimit: sum(deviceValues.map(device => device.limit)),
      devices
    };
    this.previous = { at, counters };
    this.samples = [...this.samples, sample].filter(kept => kept.at > at - RETENTION_SECONDS);
    return true;
  }

  get last(): Sample | null {
    return this.samples.at(-1) ?? null;
  }

  private rate(name: Counter, now: number | null, at: number): number | null {
    const before = this.previous?.counters[name];
    if (now === null || before === null || before === undefined || !this.previous) {
      return null;
    }
    // When a process ends, its counters are lost and the sum decreases.
    return Math.max(0, (now - before) / (at - this.previous.at));
  }
}

/** Alert level of a usage: warning from 80 % of the limit, alarm from 95 %. */
export function level(used: number, limit: number): 'ok' | 'warning' | 'alarm' {
  const ratio = limit > 0 ? used / limit : 0;
  return ratio >= 0.95 ? 'alarm' : ratio >= 0.8 ? 'warning' : 'ok';
}

/** Notices of the agent about the session's devices and disk space. */
export function deviceNotices(usage: Usage): string[] {
  return usage.kernels
    .flatMap(({ usage }) => [usage.device_notice ?? '', usage.disk_notice ?? ''])
    .filter(text => text !== '');
}

/**
 * Merge the reports of several kernels about the same device. The agent reports the usage of the
 * whole session for each of its kernels, so the values are not added.
 */
function byDevice(uses: DeviceUsage[]): Record<string, DeviceSample> {
  const ids = [...new Set(uses.map(use => use.id))];
  return Object.fromEntries(
    ids.map(id => {
      const same = uses.filter(use => use.id === id);
      return [
        id,
        {
          memory: maxOrNull(same.map(use => use.memory_bytes)),
          limit: maxOrNull(same.map(use => use.limit_bytes)) ?? 0,
          utilization: maxOrNull(same.map(use => use.utilization_percent))
        }
      ];
    })
  );
}

function isNumber(value: number | null | undefined): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

function sum(values: (number | null | undefined)[]): number {
  return values.filter(isNumber).reduce((total, value) => total + value, 0);
}

function sumOrNull(values: (number | null | undefined)[]): number | null {
  return values.some(isNumber) ? sum(values) : null;
}

function maxOrNull(values: (number | null | undefined)[]): number | null {
  const known = values.filter(isNumber);
  return known.length ? Math.max(...known) : null;
}
