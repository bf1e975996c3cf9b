import { addAmounts } from '../../components/amount';
import type { LedgerEntry } from '../../data/cluster/agents';

/** The amount of each slot that a kernel uses: the sum of the kernel's entries. */
export function slotsOf(kernel: string, entries: LedgerEntry[]): Record<string, string> {
  const slots = new Map<string, string>();
  for (const { kernel_id, slot, amount } of entries) {
    if (kernel_id === kernel) {
      const others = slots.get(slot);
      slots.set(slot, others === undefined ? amount : addAmounts(others, amount));
    }
  }
  return Object.fromEntries(slots);
}
