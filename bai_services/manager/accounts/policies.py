"""Resource policies of keypairs, users and projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.records import ResourcePolicy
from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.custom_images import DEFAULT_MAX_CUSTOM_IMAGES
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.folders.storage_hosts import ALL_LOCAL_PERMISSIONS, check_hosts
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import Caps
from bai_services.core.scheduling.caps import MAX_PENDING_SESSIONS
from bai_services.core.sessions.schedules.records import DEFAULT_MAX_SCHEDULES
from bai_services.db.accounts.policies import PolicyStore

from ..context import ManagerContext
from . import authorizer

_CAPS_FIELDS = ("total_resource_slots", "max_pending_slots")

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "keypair": {
        "default_for_unspecified": "LIMITED",
        "total_resource_slots": Caps(),
        "max_session_lifetime_seconds": 0,
        "max_lifetime_extension_seconds": 0,
        "max_concurrent_sessions": None,
        "max_pending_sessions": None,
        "max_pending_slots": None,
        "max_priority": None,
        "max_containers_per_session": 1,
        "idle_timeout_seconds": 0,
        "allowed_vfolder_hosts": ALL_LOCAL_PERMISSIONS,
    },
    "user": {
        "max_vfolder_count": 0,
        "max_quota_scope_bytes": -1,
        "max_concurrent_logins": None,
        "app_sharing": "none",
        "max_app_share_seconds": 2_592_000,
        "total_resource_slots": Caps(),
        "max_concurrent_sessions": None,
        "max_pending_sessions": MAX_PENDING_SESSIONS,
        "max_schedules": DEFAULT_MAX_SCHEDULES,
        "max_custom_images": DEFAULT_MAX_CUSTOM_IMAGES,
        "allows_public_endpoints": False,
    },
    "project": {
        "max_vfolder_count": 0,
        "max_quota_scope_bytes": -1,
        "max_custom_images": None,
        "allows_member_imports": False,
    },
}


class Policies:
    """Manage the policies of one kind: ``keypair``, ``user`` or ``project``."""

    def __init__(self, kind: str, context: ManagerContext) -> None:
        self._kind = kind
        self._store = PolicyStore(context.database, kind)
        self._clock = context.clock
        self._audit = context.audit
        self._capacity_changed = context.capacity_changed

    async def page(self, caller: Caller, query: ListQuery) -> Page[ResourcePolicy]:
        authorizer.require(caller, "policy.read")
        return await self._store.page(query)

    async def get(self, caller: Caller, name: str) -> ResourcePolicy:
        authorizer.require(caller, "policy.read")
        policy = await self._store.one(name)
        if policy is None:
            raise NotFound(f"there is no {self._kind} policy {name}", name=name)
        return policy

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> ResourcePolicy:
        authorizer.require(caller, "policy.write")
        name = check_slug(f"{self._kind} policy", spec["name"])
        values = {**DEFAULTS[self._kind], **_validated_columns(spec)}
        values.update(name=name, created_at=self._clock())
        await self._store.create(values, self._entry(caller, "create", name))
        return await self.get(caller, name)

    async def update(self, caller: Caller, name: str, changes: Mapping[str, Any]) -> ResourcePolicy:
        authorizer.require(caller, "policy.write")
        values = _validated_columns(changes)
        before = await self._store.one(name)
        details = self._audit.changes({} if before is None else fields_of(before), values)
        entry = self._entry(caller, "update", name, **details)
        policy = await self._store.update(name, values, entry, self._clock())
        self._capacity_changed()
        return policy

    async def delete(self, caller: Caller, name: str) -> None:
        authorizer.require(caller, "policy.write")
        await self._store.delete(name, self._entry(caller, "delete", name))

    def _entry(self, caller: Caller, verb: str, name: str, **details: Any) -> AuditEntry:
        return self._audit.entry(caller, f"{self._kind}-policy.{verb}", name, **details)


def _validated_columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: value for key, value in fields.items() if key != "name"}
    for field in _CAPS_FIELDS:
        if values.get(field) is not None:
            values[field] = _caps(field, values[field])
    if "allowed_vfolder_hosts" in values:
        values["allowed_vfolder_hosts"] = check_hosts(values["allowed_vfolder_hosts"])
    if values.get("default_for_unspecified", "LIMITED") not in ("LIMITED", "UNLIMITED"):
        raise InvalidRequest(
            "default_for_unspecified must be LIMITED (limit 0 for slots that are not listed) or "
            f"UNLIMITED, not {values['default_for_unspecified']!r}",
            field="default_for_unspecified",
        )
    return values


def _caps(field: str, amounts: Mapping[str, Any]) -> Caps:
    try:
        return Caps.parse(amounts)
    except InvalidRequest as error:
        # Add the name of the field, so that forms show the message next to it.
        raise InvalidRequest(error.message, **{**error.details, "field": field}) from None
