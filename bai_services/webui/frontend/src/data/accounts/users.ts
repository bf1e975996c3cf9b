import { useState } from 'react';
import { queryOptions, useMutation } from '@tanstack/react-query';
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

// Names per request, because the length of a URL is limited.
const NAMES_PER_REQUEST = 50;

/** Which of the names are user names or e-mail addresses of users that the caller may see. */
export const takenNamesQuery = (names: { username: string[]; email: string[] }) =>
  queryOptions({
    queryKey: ['entities', '/users', 'taken', names],
    queryFn: async ({ signal }) => {
      const taken = new Set<string>();
      for (const field of ['username', 'email'] as const) {
        for (let begin = 0; begin < names[field].length; begin += NAMES_PER_REQUEST) {
          const part = names[field].slice(begin, begin + NAMES_PER_REQUEST).join(',');
          const query = { limit: NAMES_PER_REQUEST, [`${field}__in`]: part };
          const { items } = await unwrap(api.GET('/users', { signal, params: { query } }));
          items.forEach(user => taken.add(user[field]));
        }
      }
      return taken;
    }
  });

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

export type PurgeAction = Schemas['UserPurge']['folders'];
export interface PurgeFailure {
  name: string;
  message: string;
}

/** Purge users one after the other; continue after a refusal. The result has the refusals. */
export function usePurgeUsers() {
  return useMutation({
    mutationFn: async (given: { names: readonly string[]; options: Schemas['UserPurge'] }) => {
      const failures: PurgeFailure[] = [];
      for (const name of given.names) {
        const params = { path: { key: name } };
        try {
          await unwrap(api.POST('/users/{key}/purge', { params, body: given.options }));
        } catch (error) {
          failures.push({ name, message: (error as Error).message });
        }
      }
      return failures;
    },
    // Not awaited: the caller closes the drawer of a removed user before the user is read again.
    onSettled: () => {
      void queries.invalidateQueries({ queryKey: ['entities'] });
    }
  });
}
