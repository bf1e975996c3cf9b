import { expect, test, vi } from 'vitest';
import type { CurrentMaintenance } from '../src/data/maintenances';

vi.stubGlobal('window', { addEventListener: () => undefined });
vi.mock('../src/data/client', () => ({ api: {} }));

const { readOnlyAt } = await import('../src/data/maintenances');

const period = (values: object) =>
  ({
    mode: 'read-only',
    starts_at: '2026-01-01T00:00:00Z',
    ends_at: '2026-01-01T01:00:00Z',
    ...values
  }) as CurrentMaintenance;
const isReadOnly = (time: string, values: object = {}) =>
  readOnlyAt([period(values)], Date.parse(time)) !== undefined;

test('a read-only maintenance is in force from its start to its end', () => {
  expect(isReadOnly('2025-12-31T23:59:59Z')).toBe(false);
  expect(isReadOnly('2026-01-01T00:00:00Z')).toBe(true);
  expect(isReadOnly('2026-01-01T00:59:59Z')).toBe(true);
  expect(isReadOnly('2026-01-01T01:00:00Z')).toBe(false);
  expect(isReadOnly('2030-01-01T00:00:00Z', { ends_at: null })).toBe(true);
  expect(isReadOnly('2026-01-01T00:30:00Z', { mode: 'drain' })).toBe(false);
});
