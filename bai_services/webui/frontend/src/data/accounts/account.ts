import { queryOptions, useMutation } from '@tanstack/react-query';
import { allItems } from '../allItems';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type SshKey = Schemas['SshKey'];
export type SignIn = Schemas['BrowserSignIn'];
export type Keypair = Schemas['Keypair'];

export const sshKeysQuery = queryOptions({
  queryKey: ['account', 'ssh-keys'],
  queryFn: ({ signal }) => unwrap(api.GET('/me/ssh-keys', { signal }))
});

export const ownKeypairsQuery = (username: string) =>
  queryOptions({
    queryKey: ['account', 'keypairs', username],
    queryFn: ({ signal }) =>
      allItems(page => {
        const query = { ...page, sort: '-is_active,created_at', user: username };
        return unwrap(api.GET('/keypairs', { signal, params: { query } }));
      })
  });

export const signInsQuery = queryOptions({
  queryKey: ['account', 'sign-ins'],
  queryFn: ({ signal }) => unwrap(api.GET('/me/sign-ins', { signal }))
});

export const healthQuery = queryOptions({
  queryKey: ['health'],
  queryFn: ({ signal }) => unwrap(api.GET('/health', { signal }))
});

const refresh = () => queries.invalidateQueries({ queryKey: ['account'] });

/** Add a public key; if it is empty, the server creates a key pair. */
export function useAddSshKey() {
  return useMutation({
    mutationFn: ({ name, publicKey }: { name: string; publicKey: string }) => {
      const body = { name, public_key: publicKey || null };
      return unwrap(api.POST('/me/ssh-keys', { body }));
    },
    onSettled: refresh
  });
}

export function useRemoveSshKey() {
  return useMutation({
    mutationFn: (name: string) =>
      unwrap(api.DELETE('/me/ssh-keys/{name}', { params: { path: { name } } })),
    onSettled: refresh
  });
}

export function useEndSignIn() {
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(api.DELETE('/me/sign-ins/{sign_in}', { params: { path: { sign_in: id } } })),
    onSettled: refresh
  });
}

/** Sign out of all browsers except this one. */
export function useEndOtherSignIns() {
  return useMutation({
    mutationFn: () => unwrap(api.DELETE('/me/sign-ins')),
    onSettled: refresh
  });
}

/** Fields of a keypair that its user may change. */
export type KeypairChange = { is_active: boolean } | { new_secret: true };

export function useChangeKeypair() {
  return useMutation({
    mutationFn: ({ key, change }: { key: string; change: KeypairChange }) => {
      const body = change as Schemas['KeypairChange'];
      return unwrap(api.PATCH('/keypairs/{key}', { params: { path: { key } }, body }));
    },
    onSettled: refresh
  });
}
