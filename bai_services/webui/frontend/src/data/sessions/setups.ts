import { queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type Variable = Schemas['Variable'];
export type Dotfile = Schemas['Dotfile'];
export type BootstrapScript = Schemas['BootstrapScript'];

/** The owner of a setup: the id of a project, or undefined for the user. */
export type Scope = string | undefined;

const keyOf = (scope: Scope) => ['setups', scope ?? 'own'];
const refresh = (scope: Scope) => queries.invalidateQueries({ queryKey: keyOf(scope) });

export const variablesQuery = (scope: Scope) =>
  queryOptions({
    queryKey: [...keyOf(scope), 'environ'],
    queryFn: ({ signal }) =>
      unwrap(
        scope === undefined
          ? api.GET('/me/environ', { signal })
          : api.GET('/projects/{key}/environ', { signal, params: { path: { key: scope } } })
      )
  });

export const dotfilesQuery = (scope: Scope) =>
  queryOptions({
    queryKey: [...keyOf(scope), 'dotfiles'],
    queryFn: ({ signal }) =>
      unwrap(
        scope === undefined
          ? api.GET('/me/dotfiles', { signal })
          : api.GET('/projects/{key}/dotfiles', { signal, params: { path: { key: scope } } })
      )
  });

export const bootstrapQuery = (scope: Scope) =>
  queryOptions({
    queryKey: [...keyOf(scope), 'bootstrap'],
    queryFn: ({ signal }) =>
      unwrap(
        scope === undefined
          ? api.GET('/me/bootstrap', { signal })
          : api.GET('/projects/{key}/bootstrap', { signal, params: { path: { key: scope } } })
      )
  });

export function useSetVariable(scope: Scope) {
  return useMutation({
    mutationFn: ({ name, ...body }: { name: string } & Schemas['VariableChange']) =>
      unwrap(
        scope === undefined
          ? api.PUT('/me/environ/{name}', { params: { path: { name } }, body })
          : api.PUT('/projects/{key}/environ/{name}', {
              params: { path: { key: scope, name } },
              body
            })
      ),
    onSettled: () => refresh(scope)
  });
}

export function useRemoveVariable(scope: Scope) {
  return useMutation({
    mutationFn: (name: string) =>
      unwrap(
        scope === undefined
          ? api.DELETE('/me/environ/{name}', { params: { path: { name } } })
          : api.DELETE('/projects/{key}/environ/{name}', { params: { path: { key: scope, name } } })
      ),
    onSettled: () => refresh(scope)
  });
}

export function useSetDotfile(scope: Scope) {
  return useMutation({
    mutationFn: ({ path, ...body }: { path: string } & Schemas['DotfileChange']) =>
      unwrap(
        scope === undefined
          ? api.PUT('/me/dotfiles/{path}', { params: { path: { path } }, body })
          : api.PUT('/projects/{key}/dotfiles/{path}', {
              params: { path: { key: scope, path } },
              body
            })
      ),
    onSettled: () => refresh(scope)
  });
}

export function useRemoveDotfile(scope: Scope) {
  return useMutation({
    mutationFn: (path: string) =>
      unwrap(
        scope === undefined
          ? api.DELETE('/me/dotfiles/{path}', { params: { path: { path } } })
          : api.DELETE('/projects/{key}/dotfiles/{path}', {
              params: { path: { key: scope, path } }
            })
      ),
    onSettled: () => refresh(scope)
  });
}

export function useSetBootstrap(scope: Scope) {
  return useMutation({
    mutationFn: (body: Schemas['BootstrapChange']) =>
      unwrap(
        scope === undefined
          ? api.PUT('/me/bootstrap', { body })
          : api.PUT('/projects/{key}/bootstrap', { params: { path: { key: scope } }, body })
      ),
    onSettled: () => refresh(scope)
  });
}

export function useRemoveBootstrap(scope: Scope) {
  return useMutation({
    mutationFn: () =>
      unwrap(
        scope === undefined
          ? api.DELETE('/me/bootstrap', {})
          : api.DELETE('/projects/{key}/bootstrap', { params: { path: { key: scope } } })
      ),
    onSettled: () => refresh(scope)
  });
}
