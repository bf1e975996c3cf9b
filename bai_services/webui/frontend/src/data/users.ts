import { useState } from 'react';
import { api, unwrap, type Schemas } from './client';
import { queries } from './queries';

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
