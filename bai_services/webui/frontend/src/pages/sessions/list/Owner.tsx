import { createContext, useContext } from 'react';
import { useQuery } from '@tanstack/react-query';
import { personal } from '../../../components/personal';
import { meQuery } from '../../../data/accounts/me';
import { emailsQuery } from '../../../data/accounts/users';
import type { Session } from '../../../data/sessions/sessions';

/** The e-mail addresses of the owners in a list, by user name. */
export const Emails = createContext<ReadonlyMap<string, string> | undefined>(undefined);

/** Read the addresses for `Emails`, if the user may see addresses of other users. */
export function useEmails(sessions: readonly Session[]) {
  const { data: me } = useQuery(meQuery);
  const seesOthers = me !== undefined && me.role !== 'user';
  return useQuery({
    ...emailsQuery(sessions.map(({ owner }) => owner)),
    enabled: seesOthers && sessions.length > 0
  }).data;
}

/** The owner of a session. When the addresses arrive, only this component renders again. */
export function Owner({ name }: { name: string }) {
  const email = useContext(Emails)?.get(name);
  return (
    <>
      <div>{personal(name)}</div>
      <span className="bai-secondary">{personal(email ?? '')}</span>
    </>
  );
}
