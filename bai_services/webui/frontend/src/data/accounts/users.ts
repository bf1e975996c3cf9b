import { useState } from 'react';
import { queryOptions } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

/** E-mail addresses by user name; users that the caller may not see are omitted. */
export function emailsQuery(usernames: readonly string[]) {
  const names = [...new Set(usernames)].sort().join(',');
  return queryOptions({
    queryKey: ['entities', '/users', 'emails', names],
    staleTime: Infinity,
    queryFn: ({ signal }) => {
      const query = { limit: 500, username__in: names };
      return unwrap(api.GET('/users', { signal, params: { query } }));
    },
    select: ({ items }) => new Map(items.map(({ username, email }) => [username, email]))
  });
}

type NewUser = Schemas['NewUser'];

/** The result of each row of an import: an error message, or undefined for a created user. */
export type Outcomes = ReadonlyMap<number, string | undefined>;

const NONE: Outcomes = new Map();

/** Create users one after the other; continue after a refusal. */
export function useImportUsers() {
  const [outcomes, setOutcomes] = useState(NONE);
  const [isPending, setIsPending] = useState(false);
  const run = async (users: readonly { number: number; user: NewUser }[]) => {
    setIsPending(true);
    const again = new Set(users.map(({ number }) => number));
    setOutcomes(known => new Map([...known].filter(([number]) => !again.has(number))));
    for (const { number, user } of users) {
      const problem = await unwrap(api.POST('/users', { body: user })).then(
        () => undefined,
        (error: unknown) => (error as Error).message
      );
      setOutcomes(known => new Map(known).set(number, problem));
    }
    setIsPending(false);
    await queries.invalidateQueries({ queryKey: ['entities', '/users'] });
  };
  return { outcomes, isPending, run, reset: () => setOutcomes(NONE) };
}
