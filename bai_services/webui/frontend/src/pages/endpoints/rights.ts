import { useQuery } from '@tanstack/react-query';
import { meQuery } from '../../data/accounts/me';
import type { Endpoint } from '../../data/serving/endpoints';

/** What the user may do with an endpoint. */
export interface Rights {
  /** Define what it runs, and create tokens. */
  isOwner: boolean;
  /** Pause, scale and delete it, undo a rollout, and revoke tokens. */
  isManager: boolean;
}

/** The list contains only endpoints that an administrator may manage. */
export function useRights(endpoint: Endpoint): Rights {
  const { data: me } = useQuery(meQuery);
  const isOwner = me !== undefined && me.id === endpoint.owner_id && me.role !== 'monitor';
  return { isOwner, isManager: isOwner || me?.role === 'admin' || me?.role === 'superadmin' };
}
