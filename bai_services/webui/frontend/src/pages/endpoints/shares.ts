import type { Revision } from '../../data/serving/endpoints';

export interface Share {
  /** Number of the revision. */
  number: number;
  /** 0 to 1. */
  share: number;
}

/** The shares of the requests that revisions get, from their weights by id. */
export function sharesOf(
  weights: Record<string, number>,
  revisions: readonly Pick<Revision, 'id' | 'number'>[]
): Share[] {
  const total = Object.values(weights).reduce((sum, weight) => sum + weight, 0);
  return revisions
    .map(({ id, number }) => ({ number, share: (weights[id] ?? 0) / total }))
    .filter(({ share }) => share > 0)
    .sort((one, other) => one.number - other.number);
}
