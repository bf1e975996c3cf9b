import { numberOf } from '../../components/amount';
import type { Quotas } from '../../data/sessions/quotas';
import { Stored } from '../../data/stored';

export const PANELS = ['limits', 'mine', 'group'] as const;
export type Panel = (typeof PANELS)[number];

/** Amounts of a slot; `free`, `total` and `percent` are null if there is no limit. */
export interface Amount {
  slot: string;
  used: string;
  free: string | null;
  total: string | null;
  percent: number | null;
}

/** For each slot, the amounts in the most limiting scope; without a limit, the user's usage. */
export function limitsOf({ scopes, mine }: Quotas): Amount[] {
  const slots = new Map<string, Amount>();
  for (const { kind, slots: quotas } of scopes) {
    for (const { slot, used, limit, left, percent, is_limiting: isLimiting } of quotas) {
      if (isLimiting || (kind === 'user' && !slots.has(slot))) {
        slots.set(slot, { slot, used, free: left, total: limit, percent });
      }
    }
  }
  // The other slots are not limited, and the user uses none of them.
  const unlimited = mine.filter(({ slot }) => !slots.has(slot));
  const rest = { used: '0', free: null, total: null, percent: null };
  return [...slots.values(), ...unlimited.map(({ slot }) => ({ ...rest, slot }))];
}

type Scope = Quotas['scopes'][number];
type SlotQuota = Scope['slots'][number];

/** 0 for a limiting quota, 1 for another limit, 2 for usage without a limit, 3 for the rest. */
const rankOf = ({ limit, used, is_limiting: isLimiting }: SlotQuota) =>
  isLimiting ? 0 : limit !== null ? 1 : numberOf(used) > 0 ? 2 : 3;

const firstRank = ({ slots }: Scope) => Math.min(...slots.map(rankOf));

/**
 * The scopes, and the slots of each scope: first limiting quotas, then other limits, then usage
 * without a limit. Slots without limit and usage, of which there can be many, are omitted unless
 * `showsAll` is set.
 */
export function quotaScopes({ scopes }: Quotas, showsAll: boolean): Scope[] {
  return scopes
    .map(scope => ({
      ...scope,
      slots: scope.slots
        .filter(slot => showsAll || rankOf(slot) < 3)
        .sort((one, other) => rankOf(one) - rankOf(other))
    }))
    .filter(({ slots }) => slots.length > 0)
    .sort((one, other) => firstRank(one) - firstRank(other));
}

/** The number of slots that are omitted unless all are shown. */
export const omittedQuotas = ({ scopes }: Quotas) =>
  scopes.flatMap(({ slots }) => slots).filter(slot => rankOf(slot) === 3).length;

export const amountsOf = (quotas: Quotas, panel: Panel): Amount[] =>
  panel === 'limits' ? limitsOf(quotas) : panel === 'mine' ? quotas.mine : quotas.resources;

interface PanelChoice {
  panel: Panel;
  isFree: boolean;
}

export const readChoice = (stored: unknown): PanelChoice => {
  const given = (stored ?? {}) as Record<string, unknown>;
  return {
    panel: PANELS.find(panel => panel === given['panel']) ?? 'limits',
    isFree: given['isFree'] === true
  };
};

/** The user's choice for the resource panel of the sessions page, stored in the browser. */
export const panelChoice = new Stored('bai-resource-panel', readChoice);
