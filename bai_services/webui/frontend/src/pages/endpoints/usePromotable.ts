import { useQuery } from '@tanstack/react-query';
import { revisionsQuery, type Endpoint } from '../../data/serving/endpoints';

interface Rollout {
  strategy: string;
  is_automatic: boolean;
}

/**
 * The rules of a blue-green or canary rollout in progress that can be promoted; undefined without
 * such a rollout.
 */
export function usePromotable(endpoint: Endpoint): Rollout | undefined {
  const { active_revision: active, target_revision: target, is_promoted: isPromoted } = endpoint;
  const isDeploying = active !== null && active !== target && !isPromoted;
  const { data: revisions } = useQuery({ ...revisionsQuery(endpoint.id), enabled: isDeploying });
  const settings = revisions?.find(({ number }) => number === target)?.settings;
  const rollout = settings?.['rollout'] as Rollout | undefined;
  return isDeploying && rollout?.strategy !== 'rolling' ? rollout : undefined;
}
