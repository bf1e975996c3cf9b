"""Session setups of users and projects: manage them, and combine them for a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.sessions.setup import (
    BootstrapScript,
    Dotfile,
    SessionSetup,
    Setup,
    Variable,
    check_dotfiles,
    check_mounts,
    check_script,
    check_variables,
    combine,
    mask,
)
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.setups import SetupOwner, SetupStore

from ..accounts import authorizer
from ..accounts.keypair_secrets import KeypairSecrets
from ..accounts.projects import Projects
from ..context import ManagerContext
from .requests.secret_environ import SecretEnviron, secret_names

# How long the secrets of a session are kept after its end: they are needed to mask its output.
SECRETS_KEPT = timedelta(days=1)

SetupsByOwner = Mapping[tuple[str, str], tuple[Setup, Setup]]


class Setups:
    """Reads and changes setups. Without ``project``, a method uses the caller's own setup.

    Values of secrets are stored encrypted and are never part of a response.
    """

    def __init__(self, context: ManagerContext, projects: Projects, key: bytes) -> None:
        self._store = SetupStore(context.database)
        self._projects = projects
        self._cipher = KeypairSecrets(key)
        self._clock = context.clock
        self._audit = context.audit

    async def get(self, caller: Caller, project: str | None = None) -> Setup:
        """Return a setup without the values of secrets.

        Members may read the setup of a project, and administrators the setup of any project of
        their domain. Its variables, files and script may contain credentials, so monitors may not.
        """
        if project is None:
            owner = _own(caller, "setup.read")
        else:
            found = await self._projects.get(caller, project)
            authorizer.require(caller, "project.read-setup", Target(found.domain, found.id))
            owner = SetupOwner("project", found.id)
        return _without_secrets(await self._store.of(owner))

    async def set_variable(
        self, caller: Caller, name: str, value: str, is_secret: bool, project: str | None = None
    ) -> Variable:
        stored = self._cipher.encrypt(value) if is_secret else value
        variable = Variable(name, stored, is_secret, self._clock(), caller.role)

        def change(setup: Setup) -> Setup:
            others = [one for one in setup.variables if one.name != name]
            variables = tuple(sorted([*others, variable], key=lambda one: one.name))
            check_variables(variables, {one.name: self._decrypt(one) for one in variables})
            return replace(setup, variables=variables)

        await self._change(caller, project, change, "set-variable", name=name)
        return _without_value(variable)

    async def remove_variable(self, caller: Caller, name: str, project: str | None = None) -> None:
        def change(setup: Setup) -> Setup:
            others = tuple(one for one in setup.variables if one.name != name)
            _require_change(len(others) < len(setup.variables), f"variable {name!r}")
            return replace(setup, variables=others)

        await self._change(caller, project, change, "remove-variable", name=name)

    async def set_dotfile(
        self, caller: Caller, path: str, spec: Mapping[str, Any], project: str | None = None
    ) -> Dotfile:
        dotfile = Dotfile(path, spec["permission"], spec["content"], self._clock(), caller.role)

        def change(setup: Setup) -> Setup:
            others = [one for one in setup.dotfiles if one.path != path]
            dotfiles = tuple(sorted([*others, dotfile], key=lambda one: one.path))
            check_dotfiles(dotfiles)
            return replace(setup, dotfiles=dotfiles)

        await self._change(caller, project, change, "set-dotfile", path=path)
        return dotfile

    async def remove_dotfile(self, caller: Caller, path: str, project: str | None = None) -> None:
        def change(setup: Setup) -> Setup:
            others = tuple(one for one in setup.dotfiles if one.path != path)
            _require_change(len(others) < len(setup.dotfiles), f"dotfile {path!r}")
            return replace(setup, dotfiles=others)

        await self._change(caller, project, change, "remove-dotfile", path=path)

    async def set_bootstrap(
        self, caller: Caller, script: str, timeout_seconds: int, project: str | None = None
    ) -> BootstrapScript:
        check_script(script, timeout_seconds)
        bootstrap = BootstrapScript(script, timeout_seconds, self._clock(), caller.role)
        await self._change(
            caller, project, lambda setup: replace(setup, bootstrap=bootstrap), "set-bootstrap"
        )
        return bootstrap

    async def remove_bootstrap(self, caller: Caller, project: str | None = None) -> None:
        def change(setup: Setup) -> Setup:
            _require_change(setup.bootstrap is not None, "bootstrap script")
            return replace(setup, bootstrap=None)

        await self._change(caller, project, change, "remove-bootstrap")

    async def _change(
        self,
        caller: Caller,
        project: str | None,
        change: Callable[[Setup], Setup],
        verb: str,
        **details: str,
    ) -> None:
        if project is None:
            owner, domain = _own(caller, "setup.write"), caller.domain
        else:
            found = await self._projects.get(caller, project)
            authorizer.require(caller, "project.write", Target(domain=found.domain))
            owner, domain = SetupOwner("project", found.id), found.domain
            details = {**details, "project": found.name}
        entry = self._audit.entry(caller, f"setup.{verb}", owner.id, domain=domain, **details)
        await self._store.change(owner, change, entry)

    def _decrypt(self, variable: Variable) -> str:
        value = variable.value or ""
        return self._cipher.decrypt(value) if variable.is_secret else value


class SessionSetups:
    """Combines the setups for sessions, and masks their secrets in logs."""

    def __init__(self, store: SetupStore, key: bytes) -> None:
        self._store = store
        self._cipher = KeypairSecrets(key)
        self._secret_environ = SecretEnviron(key)

    async def read(self, rows: Sequence[SessionRow]) -> SetupsByOwner:
        """Return the setups that apply to sessions, by owner and project."""
        if not rows:
            return {}
        return await self._store.of_sessions([(row.owner_id, row.project_id) for row in rows])

    async def combine(self, row: SessionRow, setups: SetupsByOwner) -> SessionSetup:
        """Return the setup of one session; ``setups`` is the result of ``read``.

        The first call stores the secrets with the session; later calls return the stored secrets.
        Thus all kernels of a session get the same secrets, and logs are masked with these secrets.

        Raises
        ------
        Unavailable
            If the manager's key has changed.
        """
        project, user = setups.get((row.owner_id, row.project_id), (Setup(), Setup()))
        own_secrets = secret_names(row.environ)
        if project == user == Setup() and not own_secrets:
            return SessionSetup()
        setup = combine(
            [
                (f"project {row.project}", self._decrypted(project)),
                (row.owner, self._decrypted(user)),
            ],
            self._secret_environ.decrypt(row.environ),
            own_secrets,
            [str(mount["path"]) for mount in row.mounts],
        )
        return await self._with_kept_secrets(row.id, setup)

    async def check_mounts(
        self, owner_id: str, project_id: str, mount_paths: Sequence[str]
    ) -> None:
        """Raise InvalidRequest if a mount of a new session collides with a dotfile."""
        if not mount_paths:
            return
        found = await self._store.of_sessions([(owner_id, project_id)])
        for setup in found.get((owner_id, project_id), ()):
            check_mounts(setup.dotfiles, mount_paths)

    async def secrets(
        self, owner_id: str, project_id: str, names: Sequence[str]
    ) -> Mapping[str, str]:
        """Return the values of secrets; a user's own secret takes precedence over the project's.

        Raises
        ------
        InvalidRequest
            If there is no such secret.
        Unavailable
            If the manager's key has changed.
        """
        if not names:
            return {}
        found = await self._store.of_sessions([(owner_id, project_id)])
        setups = found.get((owner_id, project_id), ())
        known = {one.name: one for setup in setups for one in setup.variables if one.is_secret}
        for name in names:
            if name not in known:
                raise InvalidRequest(
                    f"there is no secret {name!r}: neither you nor the project has it",
                    field="secrets",
                )
        return {name: self._cipher.decrypt(known[name].value or "") for name in names}

    async def mask(self, session_id: str, *texts: str) -> list[str]:
        """Mask the secrets of a session in texts; return the masked texts."""
        return (await self.mask_all({session_id: texts}))[session_id]

    async def mask_all(self, texts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Mask the secrets of sessions in texts; keys are session ids."""
        masked = {key: list(own) for key, own in texts.items()}
        with_text = [key for key, own in masked.items() if any(own)]
        encrypted = await self._store.secrets_of(with_text) if with_text else {}
        for key, text in encrypted.items():
            secrets = list(json.loads(self._cipher.decrypt(text)).values())
            masked[key] = await asyncio.to_thread(_mask_each, masked[key], secrets)
        return masked

    def _decrypted(self, setup: Setup) -> Setup:
        variables = tuple(
            replace(one, value=self._cipher.decrypt(one.value or "")) if one.is_secret else one
            for one in setup.variables
        )
        return replace(setup, variables=variables)

    async def _with_kept_secrets(self, session_id: str, setup: SessionSetup) -> SessionSetup:
        if not setup.secret_names:
            return setup
        secrets = {name: setup.variables[name] for name in setup.secret_names}
        stored = (await self._store.secrets_of([session_id])).get(session_id)
        if stored is None:
            encrypted = self._cipher.encrypt(json.dumps(secrets))
            stored = await self._store.keep_secrets(session_id, encrypted)
        kept = json.loads(self._cipher.decrypt(stored))
        others = {k: v for k, v in setup.variables.items() if k not in setup.secret_names}
        return replace(setup, variables={**others, **kept}, secret_names=tuple(sorted(kept)))


def _mask_each(texts: Sequence[str], secrets: Sequence[str]) -> list[str]:
    return [mask(text, secrets) for text in texts]


def _own(caller: Caller, action: str) -> SetupOwner:
    if caller.user_id is None:
        raise Forbidden(f"{caller.role} is a system component, not a user")
    authorizer.require(caller, action, Target(owner=Owner(caller.user_id, caller.role)))
    return SetupOwner("user", caller.user_id)


def _without_secrets(setup: Setup) -> Setup:
    return replace(setup, variables=tuple(map(_without_value, setup.variables)))


def _without_value(variable: Variable) -> Variable:
    return replace(variable, value=None) if variable.is_secret else variable


def _require_change(has_changed: bool, what: str) -> None:
    if not has_changed:
        raise NotFound(f"there is no {what}")
