"""Manage resource groups: sets of agents with an engine, scheduler options and allowed users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.group_options import (
    CHANGES_FIELD,
    FIELD,
    PROVISIONING,
    check_changes,
    check_options,
    merged_options,
)
from bai_services.core.cluster.model import EngineName, LinkKind
from bai_services.core.cluster.records import GroupLink, ResourceGroup
from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import Caps
from bai_services.core.scheduling.queue import Order
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.db.cluster.resource_groups import GroupFilter, GroupStore

from ..accounts import authorizer
from ..context import ManagerContext

_DEFAULT_SESSION_TYPES = (SessionType.INTERACTIVE, SessionType.BATCH, SessionType.INFERENCE)


class ResourceGroups:
    """Manages resource groups. Users only see the groups that they may use."""

    def __init__(self, context: ManagerContext, *, has_provisioning: bool) -> None:
        """``has_provisioning``: whether this installation has a command that starts machines."""
        self._has_provisioning = has_provisioning
        self._store = GroupStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._capacity_changed = context.capacity_changed

    async def page(self, caller: Caller, query: ListQuery) -> Page[ResourceGroup]:
        return await self._store.page(query, visibility_filter(caller))

    async def get(self, caller: Caller, name: str) -> ResourceGroup:
        return await self._store.one(name, visibility_filter(caller))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> ResourceGroup:
        """Create a resource group.

        If it is the default group, it replaces the previous default group.
        """
        authorizer.require(caller, "resource-group.write")
        name = check_slug("resource group", spec["name"])
        self._check_provisioning(spec.get(FIELD) or {})
        values = {
            "description": "",
            "is_active": True,
            "is_default": False,
            "is_public": True,
            "engine": EngineName.PROCESS,
            "scheduler": Order.FIFO,
            "scheduler_opts": {},
            "allowed_session_types": list(_DEFAULT_SESSION_TYPES),
            "total_resource_slots": Caps(),
            "max_concurrent_sessions": None,
            **_validated_columns(spec),
            "name": name,
            "created_at": self._clock(),
        }
        return await self._store.create(values, self._entry(caller, "create", name))

    async def update(self, caller: Caller, name: str, changes: Mapping[str, Any]) -> ResourceGroup:
        authorizer.require(caller, "resource-group.write")
        columns = {key: value for key, value in changes.items() if key != CHANGES_FIELD}
        values, options = _validated_columns(columns), changes.get(CHANGES_FIELD) or {}
        if options and FIELD in values:
            raise InvalidRequest(
                f"give either {FIELD} or {CHANGES_FIELD}, not both", field=CHANGES_FIELD
            )
        check_changes(options)
        self._check_provisioning(options or values.get(FIELD) or {})
        before = fields_of(await self._store.one(name))
        after = {**values, FIELD: merged_options(before[FIELD], options)} if options else values
        entry = self._entry(caller, "update", name, **self._audit.changes(before, after))
        group = await self._store.update(name, values, entry, option_changes=options)
        self._capacity_changed()
        return group

    async def delete(self, caller: Caller, name: str) -> None:
        authorizer.require(caller, "resource-group.write")
        await self._store.delete(name, self._entry(caller, "delete", name))

    async def links(self, caller: Caller, name: str, query: ListQuery) -> Page[GroupLink]:
        """Return the domains, projects, users and keypairs that may use a non-public group."""
        authorizer.require(caller, "resource-group.read-links")
        return await self._store.links(name, query)

    async def link(self, caller: Caller, name: str, kind: str, target: str) -> GroupLink:
        """Allow a domain, project, user or keypair (id or name) to use a group."""
        authorizer.require(caller, "resource-group.write")
        entry = self._entry(caller, "link", name, kind=kind, target=target)
        return await self._store.link(name, _kind(kind), target, entry)

    async def unlink(self, caller: Caller, name: str, kind: str, target: str) -> None:
        """Revoke the access of a domain, project, user or keypair; running sessions continue."""
        authorizer.require(caller, "resource-group.write")
        entry = self._entry(caller, "unlink", name, kind=kind, target=target)
        await self._store.unlink(name, _kind(kind), target, entry)

    def _check_provisioning(self, options: Mapping[str, Any]) -> None:
        """Raise ``InvalidRequest`` if the options start machines, but no command is configured."""
        if not self._has_provisioning and (options.get(PROVISIONING) or {}).get("maximum"):
            raise InvalidRequest(
                "this installation cannot start machines: set BAI_PROVISIONING_COMMAND of the "
                "manager first",
                field=f"{FIELD}.{PROVISIONING}.maximum",
            )

    def _entry(self, caller: Caller, verb: str, name: str, **details: Any) -> AuditEntry:
        return self._audit.entry(caller, f"resource-group.{verb}", name, **details)


def visibility_filter(caller: Caller) -> GroupFilter | None:
    """Return the filter for the groups visible to the caller; None: no filter.

    Raises
    ------
    Forbidden
        If the caller may not see any group.
    """
    visible = authorizer.visibility(caller, "resource-group.read")
    if visible.is_unrestricted:
        return None
    return GroupFilter(
        domain=caller.domain,
        project_ids=caller.projects,
        user_id=caller.user_id,
        is_domain_wide=visible.domain is not None,
    )


def _kind(text: str) -> LinkKind:
    try:
        return LinkKind(text)
    except ValueError:
        raise InvalidRequest(
            f"a resource group can be linked to {', '.join(LinkKind)}, not to {text!r}"
        ) from None


def _validated_columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: value for key, value in fields.items() if key != "name"}
    for field, known in (("engine", EngineName), ("scheduler", Order)):
        if field in values and values[field] not in set(known):
            raise InvalidRequest(
                f"{values[field]!r} is not a valid {field}; use one of {', '.join(known)}",
                field=field,
            )
    types = values.get("allowed_session_types", [])
    unknown = sorted(set(types) - set(SessionType))
    if unknown:
        raise InvalidRequest(
            f"{', '.join(unknown)}: no such session type; use {', '.join(SessionType)}",
            field="allowed_session_types",
        )
    if "scheduler_opts" in values:
        values["scheduler_opts"] = check_options(values["scheduler_opts"])
    if "total_resource_slots" in values:
        values["total_resource_slots"] = Caps.parse(values["total_resource_slots"])
    return values
