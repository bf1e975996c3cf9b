"""Domains: tenants that are isolated from each other."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.records import Domain
from bai_services.core.accounts.roles import Caller, Target
from bai_services.core.errors import NotFound
from bai_services.core.folders.storage_hosts import ALL_LOCAL_PERMISSIONS, check_hosts
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import Caps
from bai_services.db.accounts.domains import DomainStore

from ..context import ManagerContext
from . import authorizer

DEFAULT_PROJECT = "default"
DEFAULT_POLICY = "default"


class Domains:
    """List, get, create, update and delete domains."""

    def __init__(self, context: ManagerContext) -> None:
        self._store = DomainStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._capacity_changed = context.capacity_changed
        self._sign_outs_due = context.sign_outs_due

    async def page(self, caller: Caller, query: ListQuery) -> Page[Domain]:
        visible = authorizer.visibility(caller, "domain.read")
        return await self._store.page(query, visible.domain)

    async def get(self, caller: Caller, name: str) -> Domain:
        authorizer.require(caller, "domain.read", Target(domain=name))
        domain = await self._store.one(name)
        if domain is None:
            raise NotFound(f"there is no domain {name}")
        return domain

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Domain:
        """Create a domain and its project ``default``."""
        authorizer.require(caller, "domain.write")
        name = check_slug("domain", spec["name"])
        now = self._clock()
        values = {
            "name": name,
            "created_at": now,
            "description": "",
            "is_active": True,
            "total_resource_slots": Caps(),
            "max_concurrent_sessions": None,
            "allowed_vfolder_hosts": dict(ALL_LOCAL_PERMISSIONS),
            **parse_fields(spec),
        }
        project = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "domain": name,
            "name": DEFAULT_PROJECT,
            "description": "",
            "total_resource_slots": Caps(),
            "allowed_vfolder_hosts": {},
            "resource_policy": DEFAULT_POLICY,
        }
        entry = self._audit.entry(caller, "domain.create", name, domain=name)
        await self._store.create(values, project, entry)
        return await self.get(caller, name)

    async def update(self, caller: Caller, name: str, changes: Mapping[str, Any]) -> Domain:
        """Update a domain; deactivating it signs out all its users except superadmins."""
        before = await self.get(caller, name)
        authorizer.require(caller, "domain.write", Target(domain=name))
        signs_out = changes.get("is_active") is False
        values = parse_fields(changes)
        details = self._audit.changes(fields_of(before), values)
        entry = self._audit.entry(caller, "domain.update", name, domain=name, **details)
        domain = await self._store.update(name, values, signs_out, entry)
        self._capacity_changed()
        if signs_out:
            self._sign_outs_due()
        return domain

    async def delete(self, caller: Caller, name: str) -> None:
        await self.get(caller, name)
        authorizer.require(caller, "domain.write", Target(domain=name))
        entry = self._audit.entry(caller, "domain.delete", name, domain=name)
        await self._store.delete(name, entry)


def parse_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the fields that domains and projects have in common; return columns to set."""
    values = {key: value for key, value in fields.items() if key != "name"}
    if "total_resource_slots" in values:
        values["total_resource_slots"] = Caps.parse(values["total_resource_slots"])
    if "allowed_vfolder_hosts" in values:
        values["allowed_vfolder_hosts"] = check_hosts(values["allowed_vfolder_hosts"])
    return values
