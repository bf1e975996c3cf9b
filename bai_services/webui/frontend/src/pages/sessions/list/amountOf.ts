import { shortAmount } from '../../../components/amount';
import type { Session } from '../../../data/sessions/sessions';

/** The requested amount of a slot; for a pending elastic session, from the minimum to the preferred. */
export function amountOf(session: Session, slot: string) {
  const text = (amount?: string) => (amount === undefined ? '–' : shortAmount(slot, amount));
  const { elasticity, requested, status } = session;
  const [least, most] = [elasticity?.minimum[slot], elasticity?.preferred[slot]];
  return status === 'PENDING' && least !== most
    ? `${text(least)} – ${text(most)}`
    : text(requested[slot]);
}
