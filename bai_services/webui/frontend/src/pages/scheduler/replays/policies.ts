import type { Schemas } from '../../../data/client';

/** The rules of a policy; an empty string stands for the current rule of the group. */
export interface TriedRules {
  scheduler: string;
  placement: string;
  backfill: string;
}

export type Rule = keyof TriedRules;

/** The possible values of each rule. The rules have the same order as in the URL. */
export const RULES: Record<Rule, readonly string[]> = {
  scheduler: ['fifo', 'lifo', 'drf', 'fair-share'],
  placement: ['priced', 'fgd', 'best-fit', 'pack', 'spread', 'round-robin', 'random'],
  backfill: ['reserving', 'aggressive', 'off']
};
export const RULE_NAMES = Object.keys(RULES) as Rule[];
export const MAX_POLICIES = 2;

const SEPARATOR = '.';

/**
 * A policy as text for the URL, for example `drf.spread.off`. An empty part, as at the end of
 * `drf.spread.`, stands for the current rule of the group.
 */
export const policyText = (policy: TriedRules) =>
  RULE_NAMES.map(name => policy[name]).join(SEPARATOR);

/** Read a policy from the URL; an unknown value is replaced by the current rule of the group. */
export function policyOf(text: string): TriedRules {
  const parts = text.split(SEPARATOR);
  const rule = (name: Rule) => {
    const value = parts[RULE_NAMES.indexOf(name)] ?? '';
    return RULES[name].includes(value) ? value : '';
  };
  return {
    scheduler: rule('scheduler'),
    placement: rule('placement'),
    backfill: rule('backfill')
  };
}

/** The request body of a policy. */
export function requestOf({ scheduler, placement, backfill }: TriedRules): Schemas['TriedPolicy'] {
  return {
    scheduler: scheduler || null,
    scheduler_opts: { ...(placement && { placement }), ...(backfill && { backfill }) }
  };
}
