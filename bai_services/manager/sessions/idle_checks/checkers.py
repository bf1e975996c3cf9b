"""Administer idle checkers and their bindings."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.sessions.idle_checks.checkers import (
    BindingScope,
    Checker,
    CheckerSettings,
    CheckerType,
    Operator,
    check_settings,
    check_warning_times,
    fitting_warnings,
)
from bai_services.core.sessions.idle_checks.records import (
    IdleChecker,
    IdleCheckerBinding,
    IdleDecision,
)
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.user_input import shown
from bai_services.db.sessions.idle_checks.checkers import CheckerRow, IdleCheckerStore

from ...accounts import authorizer
from ...accounts.projects import Projects
from ...accounts.users import Users
from ...context import ManagerContext

_SETTINGS = tuple(field.name for field in fields(CheckerSettings))
_SESSION_TYPES = (SessionType.INTERACTIVE, SessionType.BATCH, SessionType.INFERENCE)


class IdleCheckers:
    """Manages checkers, bindings and decisions.

    Only superadmins define checkers. Domain admins bind them to their domain and to its projects
    and users; they cannot change bindings of superadmins.
    """

    def __init__(self, context: ManagerContext, projects: Projects, users: Users) -> None:
        self._store = IdleCheckerStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._projects = projects
        self._users = users

    async def page(self, caller: Caller, query: ListQuery) -> Page[IdleChecker]:
        authorizer.require(caller, "idle-checker.read")
        page = await self._store.page(query)
        return page.with_items([_record(row) for row in page.items])

    async def get(self, caller: Caller, key: str) -> IdleChecker:
        authorizer.require(caller, "idle-checker.read")
        return _record(await self._store.named(key))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> IdleChecker:
        """Create a checker; it judges no session until it is bound to a scope.

        Raises
        ------
        AlreadyExists
            If there is a checker with that name.
        InvalidRequest
            If the name, the type or a setting is not valid.
        """
        authorizer.require(caller, "idle-checker.write")
        name = check_slug("idle checker", spec["name"])
        kind = checker_type(spec["type"])
        settings = changed_settings(kind, None, spec)
        if "warnings_seconds" not in spec:
            fitting = fitting_warnings(settings.warnings_seconds, settings.max_seconds)
            settings = replace(settings, warnings_seconds=fitting)
        check_warning_times(settings)
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "name": name,
            "description": spec.get("description", ""),
            "type": kind,
            "settings": settings.as_json(),
        }
        return _record(await self._store.create(values, self._entry(caller, "create", name)))

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> IdleChecker:
        """Change a checker; its type cannot be changed."""
        authorizer.require(caller, "idle-checker.write")
        row = await self._store.named(key)
        values = {name: changes[name] for name in ("description",) if name in changes}
        if "name" in changes:
            values["name"] = check_slug("idle checker", changes["name"])
        if any(name in changes for name in _SETTINGS):
            before = CheckerSettings.from_json(row.settings)
            settings = changed_settings(CheckerType(row.type), before, changes)
            if changes.keys() & {"max_seconds", "warnings_seconds"}:
                check_warning_times(settings)
            values["settings"] = settings.as_json()
        if not values:
            return _record(row)
        entry = self._entry(caller, "update", row.name, fields=sorted(changes.keys() - {"version"}))
        version = changes.get("version") or row.version
        return _record(await self._store.update(row.id, version, values, entry, self._clock()))

    async def delete(self, caller: Caller, key: str) -> None:
        """Delete a checker and its bindings."""
        authorizer.require(caller, "idle-checker.write")
        row = await self._store.named(key)
        await self._store.delete(row.id, self._entry(caller, "delete", row.name))

    async def checker(self, caller: Caller, key: str) -> Checker:
        """Return a checker for a replay."""
        authorizer.require(caller, "idle-checker.read")
        row = await self._store.named(key)
        settings = CheckerSettings.from_json(row.settings)
        return Checker(row.id, row.name, CheckerType(row.type), settings)

    async def bindings(self, caller: Caller, query: ListQuery) -> Page[IdleCheckerBinding]:
        """Return the bindings of the scopes that the caller administers or may read."""
        visible = authorizer.visibility(caller, "idle-checker.read-bindings")
        return await self._store.bindings(query, visible.domain)

    async def bind(
        self, caller: Caller, key: str, scope: str, scope_key: str, options: Mapping[str, bool]
    ) -> IdleCheckerBinding:
        """Bind a checker to a scope.

        ``scope_key`` is a name, or the id of a user or project. ``options`` may have ``is_enabled``
        (default: true) and ``is_dry_run`` (default: false).

        Raises
        ------
        AlreadyExists
            If the checker is already bound to the scope.
        Forbidden
            If the caller may not bind checkers to the scope, or to a user with a higher role.
        NotFound
            If the checker or the scope does not exist.
        """
        authorizer.require(caller, "idle-checker.bind")
        row = await self._store.named(key)
        kind = _scope(scope)
        scope_id, target = await self._resolve(caller, kind, scope_key)
        authorizer.require(caller, "idle-checker.bind", target)
        now = self._clock()
        values = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "effective_at": now,
            "checker_id": row.id,
            "scope": kind,
            "scope_id": scope_id,
            "domain": target.domain,
            "is_enabled": options.get("is_enabled", True),
            "is_dry_run": options.get("is_dry_run", False),
            "changed_by_role": caller.role,
        }
        entry = self._entry(
            caller, "bind", row.name, domain=target.domain, scope=kind, scope_id=scope_id, **options
        )
        return await self._store.bind(values, entry)

    async def change_binding(
        self, caller: Caller, binding_id: str, changes: Mapping[str, bool]
    ) -> IdleCheckerBinding:
        """Enable or disable a binding, or change whether it is a dry run.

        Raises
        ------
        Forbidden
            If a superadmin created or last changed the binding, and the caller is a domain admin.
        """
        binding = await self._own_binding(caller, binding_id)
        values: dict[str, Any] = {**changes, "changed_by_role": caller.role}
        may_stop = changes.get("is_enabled", binding.is_enabled) and not changes.get(
            "is_dry_run", binding.is_dry_run
        )
        if may_stop and (binding.is_dry_run or not binding.is_enabled):
            values["effective_at"] = self._clock()
        entry = self._entry(
            caller,
            "change-binding",
            binding.checker,
            domain=binding.domain,
            scope=binding.scope,
            scope_id=binding.scope_id,
            **changes,
        )
        return await self._store.change_binding(
            binding.id, values, entry, roles=_changeable(caller)
        )

    async def unbind(self, caller: Caller, binding_id: str) -> None:
        """Delete a binding; errors as for ``change_binding``."""
        binding = await self._own_binding(caller, binding_id)
        entry = self._entry(
            caller,
            "unbind",
            binding.checker,
            domain=binding.domain,
            scope=binding.scope,
            scope_id=binding.scope_id,
        )
        await self._store.unbind(binding.id, entry, roles=_changeable(caller))

    async def decisions(self, caller: Caller, query: ListQuery) -> Page[IdleDecision]:
        """Return the sessions that checkers stopped, or would have stopped in a dry run."""
        visible = authorizer.visibility(caller, "idle-checker.read-bindings")
        return await self._store.decisions(query, visible.domain)

    async def _own_binding(self, caller: Caller, binding_id: str) -> IdleCheckerBinding:
        authorizer.require(caller, "idle-checker.bind")
        visible = authorizer.visibility(caller, "idle-checker.read-bindings")
        binding = await self._store.binding(binding_id)
        if visible.domain is not None and binding.domain != visible.domain:
            raise NotFound("there is no such binding, or you may not see it")
        authorizer.require(caller, "idle-checker.bind", Target(domain=binding.domain))
        authorizer.require_not_above(
            caller, "idle-checker.bind", "binding", binding.changed_by_role
        )
        return binding

    async def _resolve(self, caller: Caller, scope: BindingScope, key: str) -> tuple[str, Target]:
        """Return the id of a scope, and the target whose permissions apply."""
        match scope:
            case BindingScope.DOMAIN:
                if authorizer.visibility(caller, "idle-checker.bind").domain not in (None, key):
                    raise NotFound(f"there is no domain {shown(key)!r}, or you may not see it")
                return key, Target(domain=key)
            case BindingScope.PROJECT:
                project = await self._projects.get(caller, key)
                return project.id, Target(domain=project.domain)
            case BindingScope.USER:
                user = await self._users.get(caller, key)
                owner = Owner(user.id, Role(user.role))
                return user.id, Target(domain=user.domain, owner=owner)
            case _:
                return key, Target()

    def _entry(
        self, caller: Caller, verb: str, name: str, domain: str | None = None, **details: Any
    ) -> AuditEntry:
        return self._audit.entry(
            caller, f"idle-checker.{verb}", name, domain=domain, name=name, **details
        )


def checker_type(text: str) -> CheckerType:
    try:
        return CheckerType(text)
    except ValueError:
        names = ", ".join(CheckerType)
        raise InvalidRequest(
            f"{shown(text)!r} is not a checker type; use {names}", field="type"
        ) from None


def changed_settings(
    kind: CheckerType, before: CheckerSettings | None, changes: Mapping[str, Any]
) -> CheckerSettings:
    """Return the settings with the changes; raise ``InvalidRequest`` if they are not valid."""
    values = {name: changes[name] for name in _SETTINGS if name in changes}
    if "session_types" in values:
        values["session_types"] = tuple(_session_type(name) for name in values["session_types"])
    if "operator" in values:
        values["operator"] = _operator(values["operator"])
    if "warnings_seconds" in values:
        values["warnings_seconds"] = tuple(sorted(set(values["warnings_seconds"]), reverse=True))
    if before is not None:
        return check_settings(kind, replace(before, **values))
    if "max_seconds" not in values:
        raise InvalidRequest("max_seconds is required", field="max_seconds")
    return check_settings(kind, CheckerSettings(**values))


def _session_type(text: str) -> SessionType:
    if text not in _SESSION_TYPES:
        names = ", ".join(_SESSION_TYPES)
        raise InvalidRequest(
            f"{shown(text)!r} is not a session type; use {names}", field="session_types"
        )
    return SessionType(text)


def _operator(text: str) -> Operator:
    try:
        return Operator(text)
    except ValueError:
        raise InvalidRequest(
            f"{shown(text)!r} is not an operator; use and, or", field="operator"
        ) from None


def _scope(text: str) -> BindingScope:
    try:
        return BindingScope(text)
    except ValueError:
        names = ", ".join(BindingScope)
        raise InvalidRequest(
            f"{shown(text)!r} is not a scope; use {names}", field="scope"
        ) from None


def _changeable(caller: Caller) -> frozenset[str]:
    """Return the roles whose bindings the caller may change."""
    roles = {Role.ADMIN, caller.role}
    return frozenset(roles | {Role.SUPERADMIN} if caller.role is Role.SUPERADMIN else roles)


def _record(row: CheckerRow) -> IdleChecker:
    settings = CheckerSettings.from_json(row.settings).as_json()
    return IdleChecker(
        id=row.id,
        created_at=row.created_at,
        version=row.version,
        name=row.name,
        description=row.description,
        type=row.type,
        bindings=row.bindings,
        **settings,
    )
