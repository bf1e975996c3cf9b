import type { GroupWaits, PolicyReport } from '../../../data/scheduling/replays';

/** The reports of the history and of the current policy; those of the tried policies follow. */
export const [HISTORY, CURRENT] = [0, 1];

/**
 * The rules of a tried policy that differ from those of the current policy; all rules if none
 * differs. `orderText` returns the text of an order, such as `lifo`.
 */
export function ruleTexts(
  { scheduler, placement, backfill }: PolicyReport,
  current: PolicyReport | undefined,
  orderText: (order: string) => string
): string[] {
  const rules = [
    { text: orderText(scheduler), isCurrent: scheduler === current?.scheduler },
    { text: placement, isCurrent: placement === current?.placement },
    { text: backfill, isCurrent: backfill === current?.backfill }
  ];
  const changed = rules.filter(rule => !rule.isCurrent);
  return (changed.length > 0 ? changed : rules).map(({ text }) => text);
}

/** A user with the median waits under the current policy and under a tried policy, in seconds. */
export interface UserChange {
  user: string;
  before: number;
  after: number;
}

/** The user whose median wait changes most; undefined if no median changes by a second. */
export function mostChangedUser(
  report: PolicyReport,
  current: PolicyReport
): UserChange | undefined {
  const before = new Map(current.by_user.map(group => [keyOf(group), group.wait_seconds.median]));
  const changes = report.by_user.flatMap(group => {
    const median = before.get(keyOf(group));
    return median === undefined || !group.name
      ? []
      : [{ user: group.name, before: median, after: group.wait_seconds.median }];
  });
  const sizeOf = (change: UserChange) => Math.abs(change.after - change.before);
  const [most] = changes.sort((first, second) => sizeOf(second) - sizeOf(first));
  return most && sizeOf(most) >= 1 ? most : undefined;
}

export const keyOf = ({ domain, name }: GroupWaits) => `${domain}/${name}`;
