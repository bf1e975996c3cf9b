import { expect, test } from 'vitest';
import type { LedgerEntry } from '../src/data/cluster/agents';
import { slotsOf } from '../src/pages/agents/slotsOf';

test('the entries of several devices of a kernel are added', () => {
  const entries = [
    ['k1', 'cuda.device', '1'],
    ['k1', 'cuda.device', '1'],
    ['k1', 'mem', '4g'],
    ['k2', 'cuda.device', '1']
  ].map(([kernel_id, slot, amount]) => ({ kernel_id, slot, amount }) as LedgerEntry);
  expect(slotsOf('k1', entries)).toEqual({ 'cuda.device': '2', mem: '4g' });
});
