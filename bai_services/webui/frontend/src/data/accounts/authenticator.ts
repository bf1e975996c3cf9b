import { queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type Registration = Schemas['CodeRegistration'];

/** The user's authenticator app for one-time codes. */
export const authenticatorQuery = queryOptions({
  queryKey: ['account', 'authenticator'],
  queryFn: ({ signal }) => unwrap(api.GET('/me/authenticator', { signal }))
});

const refresh = () =>
  queries.invalidateQueries({ queryKey: authenticatorQuery.queryKey, exact: true });

/**
 * Create a secret, which is stored by `useConfirmRegistration`; `password` is empty if the account
 * has none.
 */
export function useBeginRegistration() {
  return useMutation({
    mutationFn: (password: string) =>
      unwrap(api.POST('/me/authenticator/registration', { body: { password } }))
  });
}

export function useConfirmRegistration() {
  return useMutation({
    mutationFn: (body: { registration: string; code: string }) =>
      unwrap(api.POST('/me/authenticator', { body })),
    onSettled: refresh
  });
}

export function useRemoveAuthenticator() {
  return useMutation({
    mutationFn: (code: string) => unwrap(api.POST('/me/authenticator/removal', { body: { code } })),
    onSettled: refresh
  });
}

export function useRenewRecoveryCodes() {
  return useMutation({
    mutationFn: (code: string) =>
      unwrap(api.POST('/me/authenticator/recovery-codes', { body: { code } })),
    onSettled: refresh
  });
}
