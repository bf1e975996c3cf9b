import assert from 'node:assert/strict';
import test from 'node:test';

import { RETENTION_SECONDS, Series, deviceNotices, level } from '../src/samples.ts';
import type { KernelUsage } from '../src/types.ts';

const START = Date.parse('2030-01-01T00:00:00Z');

function report(
  seconds: number,
  ...uses: KernelUsage[]
): { kernels: { at: string; usage: KernelUsage }[] } {
  const at = new Date(START + seconds * 1000).toISOString();
  return { kernels: uses.map(usage => ({ at, usage })) };
}

test('a rate is null for the first report and 0 after a counter reset', () => {
  const series = new Series();
  series.add(report(0, { io_read_bytes: 100 }));
  series.add(report(5, { io_read_bytes: 600 }));
  series.add(report(10, { io_read_bytes: 50 }));
  assert.deepEqual(
    series.samples.map(sample => sample.read),
    [null, 100, 0]
  );
});

test('a sample is the total of all kernels; a value that no kernel reports is null', () => {
  const series = new Series();
  series.add(report(0, { cpu_cores: 1, mem_bytes: 10 }, { cpu_cores: 0.5, mem_bytes: 5 }));
  assert.equal(series.last?.cpu, 1.5);
  assert.equal(series.last.memory, 15);
  assert.equal(series.last.received, null);
  assert.equal(series.last.deviceMemory, null);
});

test('a report that is not newer than the last one is ignored', () => {
  const series = new Series();
  assert.ok(series.add(report(0, { cpu_cores: 1 })));
  assert.ok(!series.add(report(0, { cpu_cores: 2 })));
  assert.ok(!series.add({ kernels: [{ at: null, usage: {} }] }));
  assert.ok(!series.add({ kernels: [] }));
  assert.equal(series.samples.length, 1);
});

test('samples older than RETENTION_SECONDS are removed', () => {
  const series = new Series();
  for (let seconds = 0; seconds <= 2 * RETENTION_SECONDS; seconds += 5) {
    series.add(report(seconds, { cpu_cores: 1 }));
  }
  assert.equal(series.samples.length, RETENTION_SECONDS / 5);
});

test('95 % of the device memory limit is an alarm', () => {
  const series = new Series();
  series.add(report(0, { devices: [{ id: 'gpu-0', memory_bytes: 95, limit_bytes: 100 }] }));
  assert.equal(level(series.last?.deviceMemory ?? 0, series.last?.deviceLimit ?? 0), 'alarm');
});

test('deviceNotices returns the notices of the agent', () => {
  assert.deepEqual(deviceNotices(report(0, { device_notice: 'over its share' })), [
    'over its share'
  ]);
});

test('level is warning from 80 % and alarm from 95 %', () => {
  assert.deepEqual(
    [level(79, 100), level(80, 100), level(95, 100), level(5, 0)],
    ['ok', 'warning', 'alarm', 'ok']
  );
});

test('a device that several kernels of an agent report is counted once', () => {
  const series = new Series();
  const use = { devices: [{ id: 'gpu-0', memory_bytes: 20, limit_bytes: 50 }] };
  series.add(report(0, use, use));
  assert.deepEqual([series.last?.deviceMemory, series.last?.deviceLimit], [20, 50]);
  assert.equal(series.last?.devices['gpu-0']?.memory, 20);
});
