import type { SessionRequest } from '../../data/sessions/launch';
import { defined } from '../../components/list/listSearch';
import { formOf, requestOf, withoutSecrets } from './form';

/** State of the launcher in the URL: the request, without values of secret variables. */
export interface LauncherSearch {
  request?: SessionRequest;
}

/** Parse the state in a URL; ignore invalid values. */
export function readLauncherSearch(search: Record<string, unknown>): LauncherSearch {
  const { request } = search;
  const isGiven = request !== null && typeof request === 'object';
  return defined({ request: isGiven ? withoutSecrets(requestOf(formOf(request))) : undefined });
}
